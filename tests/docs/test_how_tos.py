"""The how-tos, run block by block, with the results that they describe."""

from __future__ import annotations

import json
import re
from threading import Event, Thread

import pytest

from tests.docs.running_pages import PAGES, run_page
from tests.end_to_end.test_telemetry import get, summed
from tidegate.devkit.embedded_broker import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BEFORE = [r"2013-01-01 10:00:00\+00:00 +3 +False", r"2013-01-01 12:00:00\+00:00 +1 +False"]
MONITORING = (PAGES / "monitoring.md").read_text()
PATHS = re.findall(r"^curl -s http://127\.0\.0\.1:9464(/\w+)$", MONITORING, re.MULTILINE)


def test_plan_and_apply_release_the_records_that_the_page_names(broker, tmp_path):
    shown = run_page("plan-and-apply.md", tmp_path, broker)
    assert "3 held, 2 released, 1 held after" in shown
    assert "2 released, 1 held" in shown.partition("applied the changed file")[2]
    assert "carrier_updates: no change" in shown
    told = [json.loads(line)["key"] for line in shown.splitlines() if line.startswith('{"partition"')]
    assert told == ["UA", "AA"]


@pytest.mark.parametrize("page", ["migrate-from-kafka-streams.md", "migrate-from-flink.md"])
def test_the_files_of_the_migration_guides_are_valid(broker, tmp_path, page):
    assert "valid (3 operators" in run_page(page, tmp_path, broker)


@pytest.mark.long
@pytest.mark.timeout(1500)  # four streams, and a MERGE
def test_operators_replace_the_foreach_batch_code(broker, tmp_path):
    shown = run_page("migrate-from-foreachbatch.md", tmp_path, broker, own_spark=True)
    assert "before: [('JFK', '{\"visib\": 2}'), ('LGA', '{\"visib\": 8}')]" in shown
    assert "at 10:45: [('JFK', '{\"visib\": 4}')]" in shown
    assert "emitted: [('JFK', '{\"visib\": 2}')" in shown


def test_each_flight_of_the_page_on_joins_is_joined_with_the_described_weather(broker, tmp_path):
    shown = run_page("joins.md", tmp_path, broker)
    assert re.search(r'"B61"\},"table":\{"visib": 10\}\} +matched +2013-01-01 10:00', shown)
    assert re.search(r'"B62"\},"table":\{"visib": 2\}\} +matched +2013-01-01 11:00', shown)
    assert re.search(r'"B63"\} +2013-01-01 15:30', shown)
    assert "100 % need a grace of 0ms" in shown
    assert (tmp_path / "graces.svg").exists()
    assert '{"each":20.0,"percent":10,"sum":60.0}' in shown.replace("\\", "")
    assert all(f"table {name}: reads version" in shown for name in ("prices", "discounts"))
    assert re.search(r'B62 *\|2013-01-01 11:02:00\|\{"visib": 2\}\|2013-01-01 11:00:00\|matched', shown)


def test_orders_of_both_topics_are_counted_as_the_page_on_merged_topics_says(broker, tmp_path):
    shown = run_page("merged-topics.md", tmp_path, broker)
    [count] = [json.loads(line) for line in shown.splitlines() if line.startswith('{"partition"')]
    assert (count["key"], count["value"], header(count, "tidegate-window-start")) == ("shoes", "3", "1357034400000")
    assert re.search(r"no amount +orders-eu +1 ", shown)


def test_the_page_on_windows_shows_the_described_results(broker, tmp_path):
    shown = run_page("windows.md", tmp_path, broker)
    assert re.search(r"JFK-UA +1357034400000 +1357038000000 +3 +1357037400000", shown), "the open windows"
    told = [json.loads(line) for line in shown.splitlines() if line.startswith('{"partition"')]
    assert [(each["timestamp"], each["value"]) for each in told] == [
        (1357037400000, "3"),
        (1357042200000, "1"),
        (1357045200000, "1"),
    ]
    assert [header(each, "tidegate-cause") for each in told] == ["window_close", "flush", "flush"]
    assert header(told[0], "tidegate-window-start") == "1357034400000"
    assert re.search(r"JFK-UA +2013-01-01 10:00:00\+00:00 +3 ", shown), "the filtered results"
    assert re.search(r'"UA6"\} +7500000 +2013-01-01 11:00', shown), "the late record"
    assert re.search(r"2013-01-01 11:00:00\+00:00 +3 +True", shown)
    assert all(re.search(row, shown) for row in BEFORE), "the earlier version"
    assert "from Python: 1357045200000 1357048800000 b'1'" in shown
    assert "2h (now)" in shown
    assert "100 % need a grace of 3h" in shown


def header(result, name):
    """What the result's header says."""
    return next(each["value"] for each in result["headers"] if each["key"] == name)


def test_the_page_on_refused_records_shows_reasons_and_sends_one_back(broker, tmp_path):
    shown = run_page("refused-records.md", tmp_path, broker)
    assert '{"key":"__streams.errors.message","value":"late: older than max_lateness"}' in shown
    assert '{"key":"__streams.errors.message","value":"rejected: null key"}' in shown
    assert re.search(r"late +older than max_lateness +1 +1800000 ", shown)
    assert re.search(r"rejected +null key +1 +null", shown)
    assert re.search(r"AA +2013-01-01 10:30:00\S* +1800000 +2013-01-01 10:50:00\S* +2 ", shown)
    assert "late, older than max_lateness: 1\n1 record would be sent to departures" in shown
    assert "1 record sent to departures" in shown
    assert re.search(r'AA +\{"flight": 33\} +2013-01-01 10:30:00', shown)
    assert "late, older than max_lateness: 1, 1 of them sent back before" in shown


class Watcher:
    """Asks what the page asks, as long as the page's service runs; `seen`: every answer, in order."""

    def __init__(self, port):
        self.seen = {path: [] for path in PATHS}
        self._port, self._stop = port, Event()
        self._thread = Thread(target=self._ask)

    def _ask(self):
        while not self._stop.wait(0.01):
            for path, answers in self.seen.items():
                answers.append(get(self._port, path))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def test_the_service_of_the_page_on_monitoring_answers_while_it_runs(broker, tmp_path, monkeypatch):
    [port] = free_ports(1)
    monkeypatch.setenv("TIDEGATE_TELEMETRY__PORT", str(port))
    with Watcher(port) as watcher:
        shown = run_page("monitoring.md", tmp_path, broker)
    assert "no problems found" in shown, "the doctor"
    health, ready, metrics = (watcher.seen[path] for path in ("/healthz", "/readyz", "/metrics"))
    assert {status for status, _ in health} == {0, 200}
    assert {status for status, _ in ready} == {0, 200, 503}
    told = next(json.loads(body) for status, body in ready if status == 200)
    assert told["operators"]["carrier_updates"]["rule"] == "running"
    assert max(summed(body, "tidegate_records_in_total") or 0 for _, body in metrics) == 2
