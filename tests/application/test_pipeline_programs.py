"""The programs of docs/concepts/pipelines.md: fifteen typed lines at most, run on a real broker.

tests/docs/test_programs_of_pages.py type-checks them, and compares them with the files beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.application.test_programs import HOUR, records
from tests.docs.pages import DOCS, blocks
from tests.patience import PATIENCE_S
from tidegate.application.loading import load_application
from tidegate.devkit.produce_consume import read_all, write_all

PAGE = DOCS / "concepts" / "pipelines.md"
TEXTS = [block.text for block in blocks(PAGE) if block.language == "python" and block.text.startswith("# app.py\n")]
PROGRAMS = {
    name: next(text for text in TEXTS if f'name="{name}"' in text) for name in ("quiet_users", "flights", "crowded")
}
WITH_WEATHER = "flights-with-weather"
MINUTE = 60_000
PATIENCE = f"{PATIENCE_S}s"


@pytest.mark.fast
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_at_most_fifteen_lines(name: str) -> None:
    written = [line for line in PROGRAMS[name].splitlines() if line.strip() and not line.startswith("#")]
    assert len(written) <= 15


def application(name: str, folder: Path) -> Any:
    (folder / "app.py").write_text(PROGRAMS[name])
    return load_application(folder / "app.py:app")


@pytest.mark.fast
def test_the_program_of_the_comparison_is_the_first_one(tmp_path: Path) -> None:
    [text] = [block.text for block in blocks(DOCS / "comparison.md") if block.language == "python"]
    (tmp_path / "comparison.py").write_text(text)
    assert load_application(tmp_path / "comparison.py:app") == application("quiet_users", tmp_path)


@pytest.mark.broker
@pytest.mark.spark
def test_each_quiet_user_has_one_alert_when_the_hour_is_over(kafka: dict[str, str], spark: Any, tmp_path: Path) -> None:
    """The hour from 0:00 on closes at 1:10. User 1 has three events in it, and user 2 two; that of 1:05 is later."""
    events = [(1, 0), (2, 5), (1, 10), (1, 20), (2, 65), (2, 50), (3, 70)]
    write_all(kafka, "events", [(0, user.to_bytes(4, "big"), b"x", minute * MINUTE) for user, minute in events])
    with application("quiet_users", tmp_path).start() as running:
        running.await_caught_up(PATIENCE)
        held = running.sql("SELECT CAST(value AS STRING) AS count, window_start FROM quiet_users_final_buffer")
        assert [(row["count"], row["window_start"]) for row in held] == [("1", HOUR)] * 2
    windowed = (2).to_bytes(4, "big") + (0).to_bytes(8, "big")  # Kafka's serde: the key, then the window's start
    assert records(kafka, "alerts") == [(windowed, b"2")]


@pytest.mark.broker
@pytest.mark.spark
def test_each_stormy_hour_has_its_delays_once_beside_the_joined_departures(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    """The gust is above 40 from 9:00 on. The record of 12:00 releases those that wait, and closes 9:00 to 10:00."""
    gusts = [(b"JFK", b'{"gust": 30.5}', 0), (b"JFK", b'{"gust": 50.5}', 9 * HOUR), (b"JFK", None, 20 * HOUR)]
    delays = [(8.5, 60), (9.1, 20), (9.2, 30), (9.3, None), (9.4, 5), (12, 90)]
    flights = [(b"JFK", json.dumps({"delay": delay}).encode(), int(hour * HOUR)) for hour, delay in delays]
    write_all(kafka, "weather", [(0, *each) for each in gusts])
    write_all(kafka, "departures", [(0, *each) for each in flights])
    with application("flights", tmp_path).start() as running:
        running.await_caught_up(PATIENCE)
        [rejected] = running.sql("SELECT cause, event_time FROM flights_rejected")
        assert rejected["cause"] == "no delay"
        [status] = (each for name, each in running.status().items() if name == "flights")
        assert [each["lag"] for each in status["partitions"]] == [0]
    joined = [(timestamp, json.loads(value or b"")) for _, value, timestamp in read_all(kafka, WITH_WEATHER)[0]]
    assert joined == [
        (int(hour * HOUR), {"stream": {"delay": delay}, "table": {"gust": 30.5 if hour < 9 else 50.5}})
        for hour, delay in delays[:-1]
    ]
    [(key, value, timestamp)] = read_all(kafka, "storm-delays")[0]
    assert (key, json.loads(value or b"")) == (b"JFK", {"n": 2, "worst": 30})
    assert 9 * HOUR <= timestamp < 10 * HOUR


@pytest.mark.broker
@pytest.mark.spark
def test_each_crowded_hour_is_joined_with_the_limit_of_its_time(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    """JFK takes one arrival an hour, from 10:00 on three. The record of 13:00 closes the hours before 12:00."""
    limits = [(b"JFK", b'{"most": 1}', 0), (b"JFK", b'{"most": 3}', 10 * HOUR), (b"LGA", b'{"most": 0}', 20 * HOUR)]
    arrivals = [(9.1, 20), (9.2, 30), (10.1, 40), (10.15, 50), (9.5, 10), (11.0, 5), (13, 0), (15, 0)]
    write_all(kafka, "limits", [(0, *each) for each in limits])
    values = [(int(hour * HOUR), json.dumps({"delay": delay}).encode()) for hour, delay in arrivals]
    write_all(kafka, "arrivals", [(0, b"JFK", value, time) for time, value in values])
    with application("crowded", tmp_path).start() as running:
        running.await_caught_up(PATIENCE)
        held = running.sql("SELECT timestamp FROM crowded_join_limits_buffer")
        assert [row["timestamp"] for row in held] == [15 * HOUR]
    [(key, value, _)] = read_all(kafka, "crowded-hours")[0]
    assert (key, json.loads(value or b"")["stream"]) == (b"JFK", {"n": 3, "worst": 30})
    assert json.loads(value or b"")["table"] == {"most": 1}
