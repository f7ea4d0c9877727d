"""The checks of the demo's results against code that shares nothing with the operators.

The expected results are computed from the configuration, so an application with other durations and limits is checked
too. An operator that was removed, or that differs in another option, is reported as not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tidegate.application.target import load
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.devkit.demo import counting, joining, storms, updates
from tidegate.devkit.demo.departures import PARTITIONS, Departure
from tidegate.devkit.demo.expected.counts import counted
from tidegate.devkit.demo.expected.readings import expected_readings
from tidegate.devkit.demo.expected.storms import stormy_hours
from tidegate.devkit.demo.expected.updates import expected
from tidegate.devkit.demo.weather import Reading
from tidegate.devkit.produce_consume import read_all
from tidegate.runtime.configuration.application import Application, settings_of

PROGRAM = Path(__file__).with_name("app.py")
UPDATES, WEATHER, JOIN = "carrier_updates", "weather", "flights_with_weather"
HOURS, ANY_HOURS, STORMS = "departures_per_hour", "airport_traffic", "late_storms"

_FREE = {"time_limit", "max_keys", "grace", "tumbling", "hopping", "advance"}
"""Options that the expected results take into account."""

Record = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True, kw_only=True)
class Results:
    """What is checked: the operators' views and topics, and the input that they had."""

    console: Console
    spark: Any
    application: Application
    departures: list[Departure]
    readings: list[Reading]

    def held(self, operator: str) -> Counter[Record]:
        """Return the records that the operator holds, and how often."""
        rows = self.spark.sql(f"SELECT key, value, timestamp FROM {operator}_buffer").toArrow().to_pylist()
        return Counter((row["key"].encode(), row["value"].encode(), row["timestamp"]) for row in rows)

    def output(self, operator: str) -> list[list[Record]]:
        """Return the records of the operator's output topic, by partition."""
        return read_all(self.application.kafka, str(self.application.operators[operator].output))


def updates_are_right(results: Results) -> bool:
    """Compare the suppressed updates, their order and what is still held; print the outcome and return it."""
    config: Any = results.application.operators[UPDATES]
    wanted = expected(results.departures, PARTITIONS, config.until.time_limit, config.buffer.max_keys)
    return updates.compare(results.console, results.output(UPDATES), set(results.held(UPDATES)), wanted)


def joins_are_right(results: Results) -> bool:
    """Compare each joined departure and those that still wait; print the outcome and return it."""
    config: Any = results.application.operators[JOIN]
    wanted = expected_readings(results.departures, results.readings)
    found = joining.compared(
        results.output(JOIN), results.held(JOIN), results.departures, results.readings, wanted, config.grace
    )
    return joining.show_compared(results.console, found)


def hours_are_right(results: Results) -> bool:
    """Compare the final count of each hour, their order and the late departures; print the outcome and return it."""
    config: Any = results.application.operators[HOURS]
    length, grace = config.window.tumbling, config.window.grace
    hours = counted(results.departures, lambda departure: departure.key, length, length, grace)
    low = counting.low_counts(results.spark)
    different = [
        *counting.differences_of_results(results.output(HOURS), low, hours),
        *counting.differences(counting.seen(results.spark, HOURS), hours),
    ]
    return counting.show_checked(results.console, HOURS, different, hours)


def hopping_hours_are_right(results: Results) -> bool:
    """Compare the count of each hopping window; print the outcome and return it."""
    config: Any = results.application.operators[ANY_HOURS]
    window = config.window
    counts = counted(
        results.departures, lambda departure: departure.airport, window.hopping, window.advance, window.grace
    )
    different = counting.differences(counting.seen(results.spark, ANY_HOURS), counts)
    return counting.show_checked(results.console, ANY_HOURS, different, counts)


def storms_are_right(results: Results) -> bool:
    """Compare the stormy hours and the departures that came too late for them; print the outcome and return it."""
    steps: Any = results.application.operators[STORMS]
    join, hours = steps.operators["join_weather"], steps.operators["hours"]
    met = expected_readings(results.departures, results.readings)
    wanted = stormy_hours(
        results.departures, results.readings, met, hours.window.tumbling, join.grace + hours.window.grace
    )
    different = storms.differences(storms.seen(results.spark, STORMS), results.output(STORMS), wanted)
    return storms.show_checked(results.console, different, wanted)


CHECKS: dict[str, Callable[[Results], bool]] = {
    UPDATES: updates_are_right,
    JOIN: joins_are_right,
    HOURS: hours_are_right,
    ANY_HOURS: hopping_hours_are_right,
    STORMS: storms_are_right,
}


def check(results: Results, operator: str) -> bool:
    """Check the results of the operator if the independent code knows its rules. Return False if they are wrong."""
    if is_known(results.application.operators.get(operator), original().operators[operator]):
        return CHECKS[operator](results)
    difference = "it differs from the demo's in more than durations and limits."
    results.console.print(f"[yellow]Not checked:[/] {operator}: {difference}")
    return True


def original() -> Application:
    """Return the application of the demo as it is shipped."""
    return load(Path(f"{PROGRAM}:app"))


def is_known(config: OperatorConfig | None, shipped: OperatorConfig) -> bool:
    """Return whether the operator equals the shipped one, except in _FREE options and its output topic."""
    return config is not None and _shape(settings_of(config)) == _shape(settings_of(shipped))


def _shape(settings: Any, name: str = "") -> Any:
    """Return the settings with a placeholder for each option in _FREE and for the output topic."""
    if isinstance(settings, Mapping):
        return {option: _shape(value, option) for option, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [_shape(value, name) for value in settings]
    return "any" if name in _FREE or name == "output" else settings
