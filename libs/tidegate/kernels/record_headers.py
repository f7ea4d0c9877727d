"""Record headers as Python objects: for tests, tools and rare look-ups, never per record of a batch.

May import: the standard library, numpy, contracts, kernels.varint. A block is a varint count, then per header a varint
length and the name, a varint length (-1: null) and the value; b"" stands for no headers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.contracts.errors import EngineError
from tidegate.kernels.varint import read_varint, varint_size, write_varint

Header = tuple[bytes, bytes | None]


def varint(value: int) -> bytes:
    """The zigzag varint of the value."""
    out = np.empty(varint_size(value), np.uint8)
    write_varint(out, 0, value)
    return out.tobytes()


def encode_header(name: bytes, value: bytes | None) -> bytes:
    """One header as it stands in a block."""
    return varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)


def encode_headers(headers: Iterable[Header]) -> bytes:
    """The block of these headers; inverse of `decode_headers`."""
    encoded = [encode_header(name, value) for name, value in headers]
    return varint(len(encoded)) + b"".join(encoded) if encoded else b""


def decode_headers(block: bytes) -> list[Header]:
    """The headers of a block, in order. Raises EngineError for a block that runs out or has bytes left over."""
    if not block:
        return []
    data = np.frombuffer(block, np.uint8)
    count, at = read_varint(data, 0, len(data))
    headers: list[Header] = []
    while at >= 0 and len(headers) < count:
        name, at = _text(block, data, at)
        value, at = _text(block, data, at)
        headers.append((name or b"", value))
    if at != len(block):
        raise EngineError("a block of record headers is damaged", value=block[:80])
    return headers


def header_value(block: bytes, name: str) -> bytes | None:
    """The value of the last header of that name; None if there is none, or it is null."""
    wanted = name.encode()
    return next((value for found, value in reversed(decode_headers(block)) if found == wanted), None)


def _text(block: bytes, data: np.ndarray, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at, len(block))
    if at < 0 or length < -1 or length > len(block) - at:
        return None, -1
    return (None, at) if length < 0 else (block[at : at + length], at + length)
