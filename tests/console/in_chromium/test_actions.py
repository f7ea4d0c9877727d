"""Actions from the pages, in a real Chromium, on a service with a real broker: their effect is in the log."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, Page

from tests.conftest import NewTopic
from tests.console.in_chromium.conftest import opened, served
from tests.console.logs import START_MS, SUPPRESSION
from tests.patience import PATIENCE_S, wait_for
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.configuration.application import load
from tidegate.state.earlier_batches import has_version, log_after, metas
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.broker, pytest.mark.spark]


@dataclass
class Shop:
    """An application with one operator, and the service that runs it."""

    file: Path
    options: dict[str, Any]
    application: dict[str, Any]
    lake: Lake
    kafka: dict[str, str]

    def write(self, **changed: Any) -> None:
        """Write the file, with these options of the operator in place of those that it had."""
        self.options |= changed
        self.file.write_text(yaml.safe_dump(self.application | {"operators": {"limited": self.options}}))

    def feed(self, *records: tuple[bytes, int]) -> None:
        """Produce records of these keys and seconds."""
        made = ((0, key, b"v", START_MS + second * 1_000) for key, second in records)
        write_all(self.kafka, self.options["input"], made)

    def delete_all(self) -> int:
        """Delete all records of the input topic, as its retention does; return the offset of the next one."""
        up_to_the_end = TopicPartition(self.options["input"], 0, OFFSET_END)
        admin = AdminClient(self.kafka)  # which has to live until it is done
        [deleted] = admin.delete_records([up_to_the_end]).values()
        return int(deleted.result().low_watermark)

    def batches(self, action: str = "batch") -> list[BatchMeta]:
        """The batches of that action in the log."""
        if not has_version(self.lake, None):
            return []
        return [meta for meta in metas(log_after(self.lake, None)) if meta.action == action]

    def records_in(self) -> int:
        """How many records all batches have read."""
        return sum(change.counts.records_in for meta in self.batches() for change in meta.changed.values())

    def keys(self, kind: str) -> list[tuple[bytes, str | None]]:
        """The keys and causes of the rows of that kind."""
        rows = log_after(self.lake, None).read(kind, columns=["key", "cause"]).to_pylist()
        return [(row["key"], row["cause"]) for row in rows]


@pytest.fixture
def shop(broker: Broker, topic: NewTopic, tmp_path: Path) -> Shop:
    kafka = {"bootstrap.servers": broker.bootstrap}
    places = {"lake": str(tmp_path / "lake"), "state": str(tmp_path / "state"), "keep_output": "forever"}
    options = SUPPRESSION | {"input": topic(), "output": topic(), "max_lateness": "30s"}
    application = {"application": "shop", **places, "control": None, "kafka": kafka}
    made = Shop(tmp_path / "shop.yaml", options, application, open_lake(Place.of(tmp_path / "lake" / "limited")), kafka)
    made.write()
    return made


@pytest.fixture
def service(shop: Shop, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The service, which runs."""
    with (tmp_path / "run.log").open("w") as said:
        command = [sys.executable, "-m", "tidegate.cli.main", "run", str(shop.file)]
        with subprocess.Popen(command, stdout=said, stderr=said) as running:
            yield running
            running.kill()


def act(page: Page, site: str, what: str, **fields: str) -> str:
    """Follow the links to the action, fill in its form and confirm; return what the page says once it has ended."""
    return _ended(page, _confirmation(page, site, what, **fields), f"Confirm: {what}")


def preview(page: Page, site: str, what: str, **fields: str) -> str:
    """The same, with the button that changes nothing."""
    return _ended(page, _confirmation(page, site, what, **fields), "changing nothing")


def _confirmation(page: Page, site: str, what: str, **fields: str) -> str:
    page.goto(f"{site}/operators/limited")
    page.click("a:text-is('Actions')")
    for name, value in fields.items():
        page.fill(f"#{what}-{name}", value)
    page.click(f"button:text-is('{what} ...')")
    return site


def _ended(page: Page, site: str, button: str) -> str:
    page.click(f"button:has-text('{button}')")
    page.wait_for_url(f"{site}/actions/*")
    page.wait_for_selector("[role=status]:not(:has-text('It runs.'))", timeout=PATIENCE_S * 1_000)
    text = page.inner_text("main")
    assert "It has ended." in text, text
    return text


def test_each_action_is_confirmed_on_its_page_and_its_effect_is_in_the_log(
    chromium: Browser, shop: Shop, service: subprocess.Popen[bytes]
) -> None:
    """
    a at 0 s   b at 5 s   c at 60 s, which releases both   d at 8 s, late: more than 30 s before 60 s
    """
    with served(load(shop.file), str(shop.file)) as site:
        page, problems = opened(chromium, site)
        shop.feed((b"a", 0), (b"b", 5), (b"c", 60))
        wait_for(lambda: shop.records_in() == 3, "the records are read")
        shop.feed((b"d", 8))
        wait_for(lambda: shop.records_in() == 4, "the late record is read")
        [(late, cause)] = shop.keys("late")
        assert late == b"d" and cause is not None

        # an edited option is looked at, put into the file, and applied
        page.goto(f"{site}/operators/limited")
        page.click("text=Plan a change")
        edited = page.locator("#options").input_value().replace("30000ms", "1h")
        page.fill("#options", edited)
        page.click("button:text-is('Plan')")
        assert "can change while running" in page.inner_text("main") and "1 held now" in page.inner_text("main")
        shop.write(max_lateness="1h")
        assert "max_lateness" in preview(page, site, "apply") and shop.batches("apply") == []
        act(page, site, "apply")
        [applied] = shop.batches("apply")
        assert applied.settings["max_lateness"] == "3600000ms"

        # so the late record is accepted when it is sent back
        preview(page, site, "redrive", kind="late", cause=cause)
        assert shop.records_in() == 4
        act(page, site, "redrive", kind="late", cause=cause)
        wait_for(lambda: shop.records_in() == 5, "the record is read again")
        assert len(shop.keys("late")) == 1 and (b"d", "time") in shop.keys("emission")

        assert (b"c", "flush") not in shop.keys("emission")
        act(page, site, "flush")
        assert len(shop.batches("flush")) == 1 and (b"c", "flush") in shop.keys("emission")

        assert shop.batches("compaction") == []
        act(page, site, "compact")
        assert len(shop.batches("compaction")) == 1

        # records that the topic deleted while the service was away are skipped
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE_S) == 0
        newest = log_after(shop.lake, None).newest()
        assert newest is not None
        first = newest.next_offsets[0]
        shop.feed((b"e", 61), (b"f", 62))
        end = shop.delete_all()
        assert end >= first + 2
        act(page, site, "skip", ranges=f"0:{first}-{end}")
        [skipped] = shop.batches("skip")
        assert skipped.skipped == {0: (first, end)} and skipped.next_offsets == {0: end}
        assert problems == []
