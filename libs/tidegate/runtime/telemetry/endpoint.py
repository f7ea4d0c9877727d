"""The HTTP endpoint for monitoring a service: serves routes such as `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from tidegate.contracts.errors import UserError

lines = logging.getLogger("tidegate")

CLIENT_TIMEOUT_S = 10.0
"""Timeout of a client: one that has not sent its request after this is disconnected."""


SHUTDOWN_POLL_S = 0.05
"""Interval at which the server checks whether to shut down; the end of a service waits that long at most."""


class Answer(NamedTuple):
    """An HTTP response; `kind`: its content type."""

    status: HTTPStatus
    kind: str
    body: bytes


Route = Callable[[str], Answer]
"""A function from a request's `Accept` header to the response."""


def json_answer(content: Mapping[str, Any], *, well: bool) -> Answer:
    """Return a JSON response with status 200, or 503 if not `well`."""
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(content).encode() + b"\n")


@contextmanager
def endpoint(host: str, port: int, routes: Mapping[str, Route]) -> Iterator[None]:
    """Serve the routes on background threads during the block. Raise UserError if the address cannot be bound."""
    try:
        server = _Server(host, port, routes)
    except OSError as error:
        raise UserError(
            "the telemetry endpoint cannot listen on its address",
            value=f"{host}:{port}: {error.strerror}",
            remedy="stop the program that uses the port, or choose another port: "
            "telemetry.port in the file, or TIDEGATE_TELEMETRY__PORT",
        ) from error
    with server:
        Thread(target=server.serve_forever, args=(SHUTDOWN_POLL_S,), name="telemetry", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error, unless it is an OSError: a client that disconnects is no problem of the service."""
        error = sys.exception()
        if not isinstance(error, OSError):
            lines.warning("telemetry: a request failed: %s", error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT_S
    server_version, sys_version = "tidegate", ""

    def do_GET(self) -> None:
        route = self.server.routes.get(self.path.partition("?")[0], self._unknown)
        answer = route(self.headers.get("Accept", ""))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _unknown(self, _accept: str) -> Answer:
        known = " ".join(self.server.routes).encode()
        return Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", known + b"\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests arrive every few seconds."""
