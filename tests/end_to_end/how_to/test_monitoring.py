"""The how-to on monitoring a service, run block by block."""

from __future__ import annotations

import json
import re
from threading import Event, Thread

import pytest

from tests.end_to_end.how_to.pages import PAGES, run_page
from tests.end_to_end.test_telemetry import get, summed
from tidegate.devkit.embedded_broker import free_ports
from tidegate.runtime.telemetry.metric_definitions import BY_NAME

PAGE = (PAGES / "monitoring.md").read_text()
PATHS = re.findall(r"^curl -s http://127\.0\.0\.1:9464(/\w+)$", PAGE, re.MULTILINE)


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


@pytest.mark.spark
@pytest.mark.broker
def test_every_block_of_the_how_to_runs_while_the_service_answers(tmp_path, monkeypatch):
    [port] = free_ports(1)
    monkeypatch.setenv("TIDEGATE_TELEMETRY__PORT", str(port))
    with Watcher(port) as watcher:
        shown = run_page("monitoring.md", tmp_path)
    assert "no problems found" in shown, "the doctor"
    health, ready, metrics = (watcher.seen[path] for path in ("/healthz", "/readyz", "/metrics"))
    assert {status for status, _ in health} == {0, 200}
    assert {status for status, _ in ready} == {0, 200, 503}
    told = next(json.loads(body) for status, body in ready if status == 200)
    assert told["operators"]["carrier_updates"]["rule"] == "running"
    assert max(summed(body, "tidegate_records_in_total") or 0 for _, body in metrics) == 2


@pytest.mark.fast
def test_the_queries_of_the_how_to_use_existing_metrics():
    asked = set(re.findall(r"tidegate_[a-z_]+", re.sub(r"_(bucket|sum|count)\b", "", PAGE)))
    assert asked and asked <= BY_NAME.keys()
