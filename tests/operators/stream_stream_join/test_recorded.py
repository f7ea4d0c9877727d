"""Joins of two streams recorded from Kafka Streams 4.1.1 by `tests.oracle.record`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.record import STREAM_JOINS
from tidegate.testing.conformance import adapters, difference, scenarios

pytestmark = pytest.mark.fast

RECORDED = list(scenarios(STREAM_JOINS))


def results_of(join: str) -> list[dict[str, Any]]:
    """All recorded results of joins of this type."""
    return [
        row for scenario in RECORDED if scenario["config"]["join"] == join for row in scenario["expected"]["output"]
    ]


@pytest.mark.parametrize("scenario", RECORDED, ids=lambda found: found["id"])
def test_a_recorded_join_has_the_same_results_in_the_same_order(scenario: dict[str, Any]) -> None:
    assert difference(scenario) is None


@pytest.mark.parametrize(("join", "padded"), [("inner", []), ("left", ["right"]), ("outer", ["left", "right"])])
def test_the_recorded_joins_have_results_with_and_without_partners(join: str, padded: list[str]) -> None:
    results = results_of(join)
    assert [side for side in ("left", "right") if any(row[side] is None for row in results)] == padded
    assert sum(None not in (row["left"], row["right"]) for row in results) > 300


def test_late_records_are_among_those_recorded_and_have_no_results() -> None:
    late = [offset for scenario in RECORDED for offset in adapters()["stream_stream_join"](scenario)["late"]]
    assert len(late) > 300


@pytest.mark.parametrize("option", ["before_ms", "after_ms", "grace_ms"])
def test_a_mistake_in_a_duration_is_found(option: str) -> None:
    wrong = [found | {"config": found["config"] | {option: found["config"][option] + 2}} for found in RECORDED[::4]]
    assert sum(difference(scenario) is not None for scenario in wrong) > len(wrong) / 3
