"""Receives responses in large pieces, and copies their bytes less often than kafka-python does.

kafka-python reads 4 KiB at a time, and copies a response six times on its way to the decoder. Fetches answer with up to
16 MiB of records for each partition: to receive them took longer than to decode them.
"""

from __future__ import annotations

import ssl
from typing import Any

import numpy as np
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.protocol import parser

PIECE_BYTES = 2**18
"""How many bytes are read from a socket at a time, at most."""

_NOTHING_LEFT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ResponseBytes:
    """The bytes of one response: written in pieces, then read from the front. Takes the place of `KafkaBytes`."""

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size, np.uint8).data
        self._at = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def write(self, piece: bytes) -> None:
        """Copy the piece to the position, and move that behind it."""
        start, self._at = self._at, self._at + len(piece)
        self._bytes[start : self._at] = piece

    def read(self, size: int | None = None) -> bytes | memoryview:
        """Return the next bytes, and move the position behind them; all that are left without a copy."""
        start = self._at
        self._at = len(self) if size is None else min(len(self), start + size)
        found = self._bytes[start : self._at]
        return found if size is None else bytes(found)

    def seek(self, position: int) -> None:
        """Move to that position."""
        self._at = position

    def tell(self) -> int:
        """Return the position."""
        return self._at


def copy_once() -> None:
    """Let kafka-python keep responses in `ResponseBytes`, for the whole process."""
    parser.KafkaBytes = ResponseBytes


def receive(socket: Any) -> tuple[bytes, KafkaError | None]:
    """Return all that has arrived at the socket, which does not block; with an error if the connection has ended.

    What arrived just before the end is returned first, without the error: it says why a login was refused. `socket`:
    None if this end has been closed.
    """
    if socket is None:
        return b"", KafkaConnectionError("the connection is closed")
    pieces, error = list[bytes](), None
    try:
        while piece := socket.recv(PIECE_BYTES):
            pieces.append(piece)
        error = KafkaConnectionError("the broker has closed the connection")
    except _NOTHING_LEFT:
        pass
    except OSError as cause:
        error = KafkaConnectionError(cause)
    return b"".join(pieces), None if pieces else error
