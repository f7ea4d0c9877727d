"""What a page asks the lake for: few requests, however long the log is, and the newest version once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Browser
from tests.console.logs import SUPPRESSION, Written, application, record
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import LOOK_AHEAD, entry_key
from tidegate.state.lake.as_files import as_files
from tidegate.state.lake.posix_lake import PosixLake

pytestmark = pytest.mark.fast

OF_A_LAKE = ("get", "get_range", "etag", "list_after")


class Requests:
    """Counts the requests to lakes, data files included, except those that no page waits for."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []
        self.bytes = 0

    def noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(lake: PosixLake, key: str, *given: Any) -> Any:
            found = method(lake, key, *given)
            if threading.current_thread().name != "console":
                self.keys.append((name, key))
                self.bytes += len(found) if isinstance(found, bytes) else 0
            return found

        return asked

    def of(self, client: TestClient, address: str) -> Counter[str]:
        """The requests of a page, by kind."""
        self.keys.clear()
        self.bytes = 0
        assert client.get(address).status_code == 200
        return Counter(name for name, _ in self.keys)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Counted requests; nothing waits for a disk."""
    found = Requests()
    for name in OF_A_LAKE:
        monkeypatch.setattr(PosixLake, name, found.noting(name, getattr(PosixLake, name)))
    monkeypatch.setattr(PosixLake, "files", lambda lake, sizes: as_files(lake, sizes))
    for wait in ("sync", "sync_together"):
        monkeypatch.setattr(disk, wait, lambda *_: None)
    return found


@dataclass
class Growing:
    """A log that grows, and the pages of its operator."""

    log: Written
    client: TestClient

    def batches(self, number: int) -> None:
        """So many batches of one record each, which releases the record of 10 s before."""
        for _ in range(number):
            offset = len(self.log.records[0])
            self.log.batch([record(b"k%d" % (offset % 50), b"v", offset, offset)])


@pytest.fixture
def growing(requests: Requests, browser: Browser, tmp_path: Path) -> Growing:
    given = application(tmp_path, limited=SUPPRESSION)
    made = Growing(Written(given, "limited"), browser(given))
    made.batches(70)
    made.log.compact()
    made.batches(70)
    return made


EARLIER = 130
MOST: dict[str, int] = {
    "/": 10,
    "/operators/limited": 13,
    "/operators/limited/series": 9,
    f"/operators/limited?batch={EARLIER}": 10,
    f"/operators/limited/series?batch={EARLIER}": 9,
    f"/operators/limited/held?batch={EARLIER}": 8,
    "/operators/limited/held": 7,
    "/operators/limited/emissions": 7,
    "/operators/limited/late": 7,
    "/operators/limited/key?key=k1": 7,
    "/operators/limited/act": 0,
    "/operators/limited/plan": 0,
    "/sql": 6,
}
"""Most requests of a page after a commit, by address, without those for data files and for lost entries."""


@pytest.mark.parametrize("address", MOST)
def test_after_a_commit_a_page_asks_for_the_newest_version_once_and_reads_what_is_new(
    growing: Growing, requests: Requests, address: str
) -> None:
    for more in (1, 60):  # the second time there is a new checkpoint
        requests.of(growing.client, address)
        growing.batches(more)
        version = growing.log.log.version
        requests.of(growing.client, address)
        newest = requests.keys.count(("etag", entry_key(version + 1)))
        assert newest == (1 if MOST[address] else 0)
        if more == 1:
            ahead = {entry_key(version + 1 + at) for at in range(1, LOOK_AHEAD + 1)}
            of_log = [key for _, key in requests.keys if not key.startswith("data/") and key not in ahead]
            assert len(of_log) <= MOST[address], of_log


def test_without_a_commit_a_page_reads_no_entry_again(growing: Growing, requests: Requests) -> None:
    """But those of its newest batches, by whose attempts the batches that are kept are recognized."""
    newest = growing.log.log.version
    for address in MOST:
        requests.of(growing.client, address)
        requests.of(growing.client, address)
        read = {key for name, key in requests.keys if name == "get" and key.startswith("_delta_log")}
        assert read <= {entry_key(at) for at in (newest - 1, newest, EARLIER, EARLIER + 1)}, address
