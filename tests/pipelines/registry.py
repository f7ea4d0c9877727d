"""A schema registry for tests: it answers as Confluent's does, from schemas in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar


class Handler(BaseHTTPRequestHandler):
    """Answers to GET /schemas/ids/NUMBER. `schemas`: what is registered, by number."""

    schemas: ClassVar[dict[str, dict[str, object]]]

    def do_GET(self) -> None:
        number = self.path.partition("?")[0].removeprefix("/schemas/ids/").removesuffix("/versions")
        if number in self.schemas:
            self.answer(200, self.schemas[number])
        else:
            self.answer(404, {"error_code": 40403, "message": "Schema not found"})

    def answer(self, status: int, body: dict[str, object]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """A registry that answers so, by its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
