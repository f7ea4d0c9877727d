"""A proxy in front of an S3 server that loses, delays, doubles and refuses, and counts what passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.lake.s3_server import S3Server

Fate = Literal[
    "lost",  # done, and the connection closed without an answer
    "failed",  # done, and answered with 500
    "late",  # answered with 500, and done 0.3 s later
    "delayed",  # done, and answered half a second later
    "doubled",  # done twice; the second answer is given
    "reset",  # not done: the connection closed
    "silent",  # not done, and never answered: the connection stays open
    "busy",  # not done: 503
    "conflict",  # not done: 409, as if another request for the key were under way
    "denied",  # not done: 403
    "expired",  # not done: 400 ExpiredToken
    "held",  # not done before `release`, then done
    "stale",  # a listing as it was when it was last asked for
]

_ERRORS = {
    "failed": (500, "InternalError"),
    "late": (500, "InternalError"),
    "busy": (503, "SlowDown"),
    "conflict": (409, "ConditionalRequestConflict"),
    "denied": (403, "AccessDenied"),
    "expired": (400, "ExpiredToken"),
}
_LATE_S, _DELAY_S = 0.3, 0.5
_SILENCE_S = 60.0
"""Longer than any client waits."""
_OF_ONE_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding"}


class Request(NamedTuple):
    """A request that the proxy has seen: its method, the object's key or the listing, and its body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The object's name within the bucket."""
        return unquote(urlsplit(self.path).path).split("/", 2)[-1]

    @property
    def kind(self) -> str:
        """The kind of the request, as object stores charge for it."""
        is_listing = self.method == "GET" and "list-type=" in self.path
        return "LIST" if is_listing else self.method

    @property
    def is_conditional(self) -> bool:
        """Whether the object must not exist."""
        return any(name.lower() == "if-none-match" for name in self.headers)


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


Chooses = Callable[[Request], bool]


@dataclass
class FaultProxy:
    """What happens to requests: each entry of `_fates` is for so many requests that it chooses, the first one first."""

    upstream: S3Server
    seen: list[Request] = field(default_factory=list)
    _fates: list[tuple[Fate, Chooses, float]] = field(default_factory=list)
    _lists: dict[str, Answer] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _ended: Event = field(default_factory=Event)
    _released: Event = field(default_factory=Event)
    port: int = 0

    @property
    def server(self) -> S3Server:
        """The server as it is seen through the proxy."""
        return S3Server(self.port)

    def next(self, fate: Fate, *, kind: str = "PUT", containing: str = "", times: float = 1) -> None:
        """The next requests of that kind, to keys that contain the text, have this fate."""
        with self._lock:
            self._fates.append((fate, lambda request: request.kind == kind and containing in request.path, times))

    def always(self, fate: Fate) -> None:
        """All requests have this fate, until `heal`."""
        with self._lock:
            self._fates.append((fate, lambda _: True, float("inf")))

    def heal(self) -> None:
        """All requests pass."""
        with self._lock:
            self._fates.clear()

    def release(self) -> None:
        """The requests that are held are done."""
        self._released.set()

    def count(self, kind: str) -> int:
        """The number of requests of the kind so far."""
        return sum(request.kind == kind for request in self.seen)

    def _fate(self, request: Request) -> Fate | None:
        with self._lock:
            self.seen.append(request)
            for at, (fate, chooses, times) in enumerate(self._fates):
                if chooses(request):
                    self._fates[at : at + 1] = [(fate, chooses, times - 1)] if times > 1 else []
                    return fate
        return None

    def answer(self, request: Request) -> Answer | None:
        """The answer to a request after its fate; None if the connection is closed."""
        fate = self._fate(request)
        if fate in ("reset", "lost"):
            if fate == "lost":
                self._done(request)
            return None
        if fate == "silent":
            self._ended.wait(_SILENCE_S)
            return None
        if fate == "stale":
            return self._lists[request.path]
        if fate == "late":
            Thread(target=lambda: (time.sleep(_LATE_S), self._done(request))).start()
        if fate == "held":
            self._released.wait(_SILENCE_S)
        if fate in (None, "failed", "delayed", "doubled", "held"):
            done = self._done(request)
            if fate == "delayed":
                time.sleep(_DELAY_S)
            if fate != "failed":
                return self._done(request) if fate == "doubled" else done
        status, code = _ERRORS[fate]
        return Answer(status, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode())

    def _done(self, request: Request) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.upstream.port, timeout=30)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body)
            response = connection.getresponse()
            answer = Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()
        if request.kind == "LIST":
            self._lists[request.path] = answer
        return answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        try:
            answer = self.proxy.answer(Request(self.command, self.path, headers, body))
        except (OSError, HTTPException):
            answer = None
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        length = next((value for name, value in answer.headers if name.lower() == "content-length"), None)
        for name, value in answer.headers:
            if name.lower() not in _OF_ONE_CONNECTION | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error."""


@contextmanager
def in_front_of(server: S3Server) -> Iterator[FaultProxy]:
    """A proxy on a free port, in a thread of this process."""
    proxy = FaultProxy(server)
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy})) as listening:
        proxy.port = listening.server_address[1]
        Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy._ended.set()
            listening.shutdown()
