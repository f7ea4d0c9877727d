"""Listening for browsers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing

import h11
import pyarrow as pa
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.console.access import LOGIN, Gate, Logins
from tidegate.console.pages import console
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application

MOST_CONNECTIONS = 64
LONGEST_HEADERS = 16_384
"""Most bytes of a request's headers."""

REQUEST_S = 10.0
"""How long a browser may take to send a request: connections of slow ones would keep others out."""


class ImpatientProtocol(H11Protocol):
    """A connection that is closed if a request is not there as a whole, body included, within REQUEST_S."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_S, self._close_if_incomplete)

    def _close_if_incomplete(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.close()


def serve(
    application: Application, file: str, *, host: str, port: int, token: str | None, announce: Callable[[str], None]
) -> None:
    """Serve the console until the process is told to stop. Call `announce` with the address of each login.

    `file`: the configuration as commands name it. `token`: the token for all logins; None: each login has one of its
    own. Raise UserError if the address is taken.
    """
    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keep what pages have used: 150 MB on a large log
    with closing(_listening(host, port)) as listener:
        port = listener.getsockname()[1]
        address = f"http://{_named(host)}:{port}"
        logins = Logins(lambda new: announce(f"{address}{LOGIN}?token={new}"), token, port=port)
        if token is not None:
            announce(f"{address}{LOGIN}")
        app = console(application, logins, [host, socket.gethostname(), socket.getfqdn()], file)
        uvicorn.Server(config_of(app)).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UserError(
            "the console cannot listen on its address",
            value=f"{host}:{port}: {error.strerror}",
            remedy="stop the program that uses the port, or choose another one with --port",
        ) from error


def _named(host: str) -> str:
    """Return the host as it stands in an address; for an address that stands for all, the machine's name."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def config_of(app: Gate, port: int = 0) -> uvicorn.Config:
    """Return how the console is served; `port`: where no socket is given."""
    return uvicorn.Config(
        app,
        port=port,
        http=ImpatientProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # lines of access would show tokens
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=LONGEST_HEADERS,
        timeout_graceful_shutdown=1,
    )
