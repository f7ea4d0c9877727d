"""The emulator of Azure's blob storage for tests: Azurite. `python -m tests.lake.azure_server` fetches it with npm."""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.lake.ports import answers, free_port
from tidegate.runtime.install.paths import home
from tidegate.state.lake.place import Place

CONTAINER = "lake"
ACCOUNT = "devstoreaccount1"
_KNOWN_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of every emulator, which its documentation tells; not a secret."""
_VERSION = "3.35.0"


@dataclass(frozen=True)
class AzureServer:
    """A running emulator, whose account and key are those that every client knows."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find the emulator, and log in."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.port}",
        }

    def place(self, folder: str) -> Place:
        """A folder of the emulator's container."""
        return Place.of(f"az://{CONTAINER}/{folder}")


@contextmanager
def running(data: Path) -> Iterator[AzureServer]:
    """The emulator on a free port, with an empty container; its files are in the folder `data`. It ends with the block.

    The test is skipped if there is no Node.js, or if the emulator cannot be fetched.
    """
    if lacking := fetch():
        pytest.skip(lacking)
    process, server = _started(data)
    try:
        _make_container(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _started(data: Path) -> tuple[subprocess.Popen[bytes], AzureServer]:
    for _ in range(10):
        server, log = AzureServer(free_port()), data / "azurite.log"
        options = ["--location", str(data), "--blobPort", str(server.port), "--skipApiVersionCheck", "--silent"]
        with log.open("wb") as out:
            command = ["node", str(_program()), *options, "--disableTelemetry"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if answers(process, server.port):
            return process, server
        process.kill()
    raise RuntimeError(log.read_text()[-2000:])


def _make_container(server: AzureServer) -> None:
    """Make the container by a signed request, because obstore makes none."""
    path, sent = f"{ACCOUNT}/{CONTAINER}", {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sent.items())
    text = "PUT" + "\n" * 12 + f"{named}/{ACCOUNT}/{path}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(_KNOWN_KEY), text.encode(), "sha256").digest()).decode()
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    sent["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    connection.request("PUT", f"/{path}?restype=container", headers=sent)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


def _folder() -> Path:
    return home() / "azurite"


def _program() -> Path:
    return _folder() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def fetch() -> str:
    """Download the emulator, unless it is there; gives why it is not there then, or nothing."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "the emulator of Azure needs Node.js and npm, which are not installed"
    if _program().is_file():
        return ""
    print("Fetching the Azure emulator of the tests (190 MB)", flush=True)
    command = [npm, "install", "--prefix", str(_folder()), "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run([*command, f"azurite@{_VERSION}"], capture_output=True, text=True, env=dict(os.environ))
    return f"the emulator of Azure cannot be fetched: {done.stderr[-300:]}" if done.returncode else ""


if __name__ == "__main__":
    print(fetch() or "The emulator of Azure is there")
