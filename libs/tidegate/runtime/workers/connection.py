"""Authenticated connections between a driver's process and its workers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from threading import Thread

CONNECT_TIMEOUT_S = 10.0


class Door:
    """Listens for workers. `welcome` is called in a thread of its own with each connection that has authenticated."""

    def __init__(self, host: str, key: bytes, welcome: Callable[[Connection], None]) -> None:
        self._key, self._welcome = key, welcome
        self._socket = socket.create_server((host, 0), backlog=128)
        self.port: int = self._socket.getsockname()[1]
        Thread(target=self._listen, name="door of workers", daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait of the listening thread
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                guest, _address = self._socket.accept()
            except OSError:
                return
            # a stranger that says nothing keeps only its own thread waiting
            Thread(target=self._greet, args=(_connection(guest),), name="greeting a worker", daemon=True).start()

    def _greet(self, connection: Connection) -> None:
        try:
            # rule: workers-authenticated
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return
        self._welcome(connection)


def connect(host: str, port: int, key: bytes) -> Connection:
    """Return a connection to the driver.

    Raise OSError or EOFError if the driver has gone, AuthenticationError if either side has another key.
    """
    connection = _connection(socket.create_connection((host, port), CONNECT_TIMEOUT_S))
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return connection


def hang_up(connection: Connection) -> None:
    """End the connection at once for both sides, also for a thread that waits in it; it is closed by its reader."""
    with suppress(OSError, ValueError):
        descriptor = socket.socket(fileno=socket.dup(connection.fileno()))
        with descriptor:
            descriptor.shutdown(socket.SHUT_RDWR)


def _connection(guest: socket.socket) -> Connection:
    guest.settimeout(None)
    guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(guest.detach())
