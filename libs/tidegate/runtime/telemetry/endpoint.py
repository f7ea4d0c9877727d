"""HTTP for machines that watch a service: `/metrics`, `/healthz`, `/readyz`."""

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

SLOWEST_CLIENT_S = 10.0
"""A client that has not said what it wants after this is left."""


END_WITHIN_S = 0.05
"""How long the end of a service may wait for its endpoint."""


class Answer(NamedTuple):
    """What a request gets."""

    status: HTTPStatus
    kind: str
    body: bytes


Route = Callable[[str], Answer]
"""Gives the answer to a request with that `Accept` header."""


def json_answer(said: Mapping[str, Any], *, well: bool) -> Answer:
    """The JSON, with 200 or, when it is not well, 503."""
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(said).encode() + b"\n")


@contextmanager
def endpoint(host: str, port: int, routes: Mapping[str, Route]) -> Iterator[None]:
    """The routes answer, from threads of their own. UserError when nobody can listen there."""
    try:
        server = _Server(host, port, routes)
    except OSError as error:
        raise UserError(
            "the telemetry endpoint cannot listen",
            value=f"{host}:{port}: {error.strerror}",
            remedy="stop the program that has the port, or give this service another one: "
            "telemetry.port in the file, or TIDEGATE_TELEMETRY__PORT",
        ) from error
    with server:
        Thread(target=server.serve_forever, args=(END_WITHIN_S,), name="telemetry", daemon=True).start()
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
        """A client that hangs up is none of the service's trouble; of anything else there is a line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            lines.warning("telemetry: no answer for a client: %s", error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SLOWEST_CLIENT_S
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
        """Requests are not logged: they come every few seconds."""
