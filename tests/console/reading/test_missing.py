"""Pages while something is missing: a clean-up has deleted what is being read, the lake is away, no broker answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Browser
from tests.console.logs import PIPELINE, SUPPRESSION, Written, application, record
from tests.console.test_pages import shown
from tests.patience import wait_for
from tidegate.console.pages.retries import TRIES
from tidegate.console.sql import running
from tidegate.runtime.doctor import change_preview
from tidegate.state.delta_log import data_files
from tidegate.state.upkeep.cleanup import clean_up

EDITED = "kind:%20suppression%0Ainput:%20in%0Aoutput:%20out%0Auntil:%20%7Btime_limit:%201s%7D"
READING = (
    "/operators/limited/held",
    "/operators/limited/emissions",
    "/operators/limited/key?key=a0",
    f"/operators/limited/plan?options={EDITED}",
    "/operators/chain/held?step=limited",
    "/sql?query=SELECT%20*%20FROM%20limited_emissions%20ORDER%20BY%20ALL",
)
"""Pages that read rows."""


ROWLESS = ("/operators/limited/series", "/operators/limited/late", "/operators/limited/rejected")
"""Pages that read a log, which has no such rows."""


@dataclass
class Console:
    """The pages of an application, whose operators have the logs."""

    client: TestClient
    logs: dict[str, Written]
    lake: Path

    def get(self, address: str) -> tuple[int, str]:
        """The status and the text of a page, without what depends on when it is asked for."""
        answer = self.client.get(address)
        return answer.status_code, re.sub(r"[\d.,]+ (ms|s|min|h|d|days?)\b", "", shown(answer.text))


@pytest.fixture
def console(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setattr(change_preview, "PROBE_TIMEOUT_S", 0.1)
    given = application(tmp_path, limited=SUPPRESSION, chain=PIPELINE)
    logs = {name: Written(given, name) for name in given.operators}
    for second in range(4):
        logs["limited"].batch([record(b"a%d" % (second % 2), b"v", 8 * second, second)])
        logs["chain"].batch([record(b"a", b'{"delay": 1}', 8 * second, second)])
    for log in logs.values():
        log.batch([record(b"held", b'{"delay": 1}', 25, 4)])
    return Console(browser(given), logs, tmp_path / "lake")


def replace_files(log: Written) -> None:
    """Commit batches and compactions, and delete all files that a reader of an earlier version knows."""
    with patch("tidegate.state.delta_log.operator_log.CHECKPOINT_EVERY", 1):
        for _ in range(2):
            offset = len(log.records[0])
            log.batch([record(b"a1", b'{"delay": 1}', 8 * offset, offset)])
            log.compact()
        log.batch([record(b"a1", b'{"delay": 1}', 8 * offset, offset + 1)])
    clean_up(log.log, clock_ms=log.newest.clock + 10**9, rewind_window_ms=0)


@pytest.mark.process
@pytest.mark.parametrize("address", READING)
def test_a_page_whose_files_a_clean_up_deletes_meanwhile_is_that_of_a_newer_version(
    console: Console, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = console.logs["chain" if "chain" in address else "limited"]
    before, replaced = console.get(address), list[int]()

    def replacing(work: Callable[..., Any]) -> Callable[..., Any]:
        """The work of a page that has opened the log: its files are replaced before it is done for the first time."""

        def done(*given: Any, **named: Any) -> Any:
            if not replaced:
                replaced.append(log.log.version)
                replace_files(log)
            return work(*given, **named)

        return done

    monkeypatch.setattr(data_files, "_scan", replacing(data_files._scan))
    monkeypatch.setattr(running, "_answer", replacing(running._answer))
    found = console.get(address)
    assert replaced and found[0] == 200
    assert found == console.get(address) != before


@pytest.mark.fast
def test_a_log_that_is_damaged_is_not_read_for_ever(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in console.lake.rglob("*.parquet"):
        file.unlink()
    tried, scan = [], data_files._scan
    monkeypatch.setattr(data_files, "_scan", lambda *given: tried.append(given) or scan(*given))
    status, text = console.get("/operators/limited/held")
    assert status == 503 and "missing or damaged" in text and "Bring the log's files back" in text
    assert len([files for _log, files, *_ in tried if files]) == TRIES


@pytest.mark.process
def test_while_the_lake_is_away_each_page_says_so_and_is_back_with_it(console: Console) -> None:
    addresses = ("/", "/operators/limited", "/operators/limited/explain?at=3.0.0", *READING, *ROWLESS)
    before = {address: console.get(address) for address in addresses}
    away = console.lake.rename(console.lake.with_name("away"))
    for address in addresses:
        status, text = console.get(address)
        assert (status, address) == (200 if address in ("/", "/operators/limited") else 503, address)
        assert "the lake is unavailable" in text and "mount it again" in text and "No log yet" not in text, address
    away.rename(console.lake)
    for address in addresses:
        assert console.get(address)[0] == before[address][0] == 200, address
    # the doctor's checks, which pages do not wait for, may be some seconds old
    wait_for(lambda: "the lake is unavailable" not in console.get("/")[1] + console.get("/operators/limited")[1])


@pytest.mark.process
def test_without_a_broker_and_a_service_pages_say_what_is_not_known(console: Console) -> None:
    said = {
        "/": ("no driver runs: tidegate run", "lag unknown"),
        "/operators/limited": ("no driver runs: tidegate run", "unknown"),
        "/operators/limited/explain?at=3.0.0": ("recomputed not possible:", "no Kafka broker answers"),
        READING[3]: ("its topics could not be checked", "no Kafka broker answers"),
    }
    for address, texts in said.items():
        wait_for(lambda: all(text in console.get(address)[1] for text in texts), address)  # noqa: B023 - asked at once
    for address in (*READING, *ROWLESS, "/operators/limited/act", "/operators/limited/act/flush"):
        assert console.get(address)[0] == 200


@pytest.mark.process
def test_a_query_whose_lake_goes_away_meanwhile_says_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = running._answer

    def without_lake(*given: Any) -> Any:
        console.lake.rename(console.lake.with_name("away"))
        return answer(*given)

    monkeypatch.setattr(running, "_answer", without_lake)
    status, text = console.get(READING[-1])
    assert status == 503 and "the lake is unavailable" in text and "mount it again" in text
