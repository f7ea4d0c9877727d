"""A real S3 server for tests: s3proxy, which keeps objects in a folder. `python -m tests.lake.s3_server` fetches it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lake.ports import answers, free_port
from tidegate.runtime.install import jars
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import home
from tidegate.state.lake.place import Place

BUCKET = "lake"
REGION = "us-east-1"
LOGIN = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-log-may-show"}

_LIST = Path(__file__).with_name("ivy.xml")
_JVM = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-DLOG_LEVEL=warn"]
_SETTINGS = """\
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={AWS_ACCESS_KEY_ID}
s3proxy.credential={AWS_SECRET_ACCESS_KEY}
s3proxy.endpoint=http://127.0.0.1:{port}
jclouds.provider=filesystem-nio2
jclouds.identity=unused
jclouds.credential=unused
jclouds.filesystem.basedir={objects}
"""


@dataclass(frozen=True)
class S3Server:
    """A running server; `port` is that of the server, or of a proxy in front of it."""

    port: int

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def place(self, folder: str) -> Place:
        """A folder of the server's bucket."""
        return Place.of(f"s3://{BUCKET}/{folder}", {"endpoint": self.endpoint, "region": REGION})


@contextmanager
def running(data: Path) -> Iterator[S3Server]:
    """The server on a free port, with an empty bucket in the folder `data`. It ends with the block."""
    process, server = _started(data)
    try:
        yield server
    finally:
        process.kill()
        process.wait()


def _started(data: Path) -> tuple[subprocess.Popen[bytes], S3Server]:
    (data / "objects" / BUCKET).mkdir(parents=True)
    for _ in range(10):
        server = S3Server(free_port())
        settings = data / "s3proxy.conf"
        settings.write_text(_SETTINGS.format(port=server.port, objects=data / "objects", **LOGIN))
        with (data / "s3proxy.log").open("wb") as log:
            command = [java_command(), *_JVM, "-jar", str(_jar()), "--properties", str(settings)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if answers(process, server.port):
            return process, server
        process.kill()
    raise RuntimeError((data / "s3proxy.log").read_text()[-2000:])


def _jar() -> Path:
    return next((home() / "lake-server" / "server").glob("s3proxy-*.jar"))


def fetch() -> None:
    """Download the server's jar, unless it is there."""
    folder = home() / "lake-server"
    if jars.missing(folder, _LIST):
        print("Fetching the S3 server of the tests (55 MB)", flush=True)
        jars.retrieve(folder, _LIST, note=lambda line: print(line, flush=True))


if __name__ == "__main__":
    fetch()
