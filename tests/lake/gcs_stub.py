"""As much of Google Cloud Storage as a lake asks of it, in memory: no server of it that keeps its rules runs here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tidegate.state.lake.place import Place

BUCKET = "lake"
CONDITION = "x-goog-if-generation-match"


@dataclass
class GcsStub:
    """The objects, and what the client sent. `lose_next_answer`: the next put is done, and not answered."""

    account: Path
    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    conditions: list[str | None] = field(default_factory=list)
    lose_next_answer: bool = False
    lock: Lock = field(default_factory=Lock)

    def place(self, folder: str) -> Place:
        """A folder of the bucket, with an account that needs no login."""
        account = {"gcs_base_url": f"http://127.0.0.1:{self.port}", "disable_oauth": True}
        keys = {"client_email": "", "private_key": "", "private_key_id": ""}
        self.account.write_text(json.dumps(account | keys))
        return Place.of(f"gs://{BUCKET}/{folder}", {"secret_file": str(self.account)})

    def put(self, key: str, content: bytes, condition: str | None) -> bool:
        """Store the object; False if the condition is that there is none, and there is one."""
        with self.lock:
            self.conditions.append(condition)
            if condition == "0" and key in self.objects:
                return False
            self.objects[key] = content
            return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: GcsStub

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _answer(self, status: int, content: bytes = b"", whole: int | None = None, start: int = 0) -> None:
        self.send_response_only(status)
        self.send_header("ETag", f'"{md5(content).hexdigest()}"')
        self.send_header("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
        self.send_header("x-goog-generation", "1")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(content) - 1}/{whole}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        stored = self.stub.put(self._key, content, self.headers.get(CONDITION))
        if stored and self.stub.lose_next_answer:
            self.stub.lose_next_answer, self.close_connection = False, True
            return
        self._answer(200 if stored else 412)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            self._answer(200, self._listing(asked.get("prefix", [""])[0], asked.get("start-after", [""])[0]))
        elif (found := self.stub.objects.get(self._key)) is None:
            self._answer(404)
        elif (ranged := self.headers.get("Range")) is None:
            self._answer(200, found)
        else:
            first, last = map(int, ranged.removeprefix("bytes=").split("-"))
            self._answer(206, found[first : last + 1], len(found), first)

    def do_DELETE(self) -> None:
        self._answer(204 if self.stub.objects.pop(self._key, None) is not None else 404)

    def _listing(self, prefix: str, after: str) -> bytes:
        found = [(key, content) for key, content in sorted(self.stub.objects.items()) if key.startswith(prefix)]
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
            f"<Size>{len(content)}</Size><ETag>{md5(content).hexdigest()}</ETag></Contents>"
            for key, content in found
            if key > after
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def running(folder: Path) -> Iterator[GcsStub]:
    """The stub on a free port, in a thread of this process; the file of its account is in the folder."""
    stub = GcsStub(folder / "account.json")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": stub})) as listening:
        stub.port = listening.server_address[1]
        Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield stub
        finally:
            listening.shutdown()
