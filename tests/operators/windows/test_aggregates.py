"""Aggregates of numbers, and what is said of those that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.contracts.errors import UserError
from tidegate.operators.windows import WindowConfig, WindowedAggregation
from tidegate.testing.driver import Driver

pytestmark = pytest.mark.fast


def driver(aggregate: dict[str, Any]) -> Driver:
    raw = {"input": "in", "window": {"unlimited": True}, "aggregate": aggregate, "emit": "updates"}
    return Driver(WindowedAggregation(WindowConfig.model_validate(raw)))


def told(aggregate: dict[str, Any], *values: str) -> Any:
    """The result after those values."""
    tested = driver(aggregate)
    return json.loads([tested.pipe("a", value, 0)[0].value or b"" for value in values][-1])


def test_several_aggregates_are_an_object_and_one_is_bare() -> None:
    every = {"count": True} | {name: {"field": "n"} for name in ("sum", "min", "max", "avg")}
    assert told(every, '{"n":1}', '{"n":4.5}') == {"count": 2, "sum": 5.5, "min": 1, "max": 4.5, "avg": 2.75}
    assert told({"sum": True}, "1", "2") == 3


def test_whole_numbers_are_summed_exactly_until_they_no_longer_fit() -> None:
    large = 2**62
    assert told({"sum": True}, str(large), str(large - 1)) == 2**63 - 1
    assert told({"sum": True}, str(large), str(large), "1") == float(2**63)
    assert told({"sum": True}, str(-large), str(-large), "-1000000") == pytest.approx(-(2.0**63), rel=1e-12)
    assert told({"max": True}, str(large), str(large + 1)) == large + 1


def test_a_sum_beyond_all_doubles_stays_a_number() -> None:
    assert told({"sum": True}, "1.7e308", "1.7e308") == pytest.approx(1.7976931348623157e308)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null value"),
        ("x", "value is not JSON"),
        ("[1]", "value is not a JSON object"),
        ("{}", "field is missing"),
        ('{"n": "1"}', "field is not a number"),
        ('{"n": true}', "field is not a number"),
        ('{"n": null}', "field is not a number"),
    ],
)
def test_a_record_without_its_number_is_rejected_with_the_reason(value: str | None, reason: str) -> None:
    tested = driver({"sum": {"field": "n"}})
    assert tested.pipe("a", value, 1_000) == []
    assert [row["cause"] for row in tested.rejected] == [f"no number: {reason}"]
    assert tested.stream_time == -1


def test_a_state_with_other_aggregates_is_refused() -> None:
    tested = driver({"sum": True})
    tested.pipe("a", "1", 0)
    with pytest.raises(UserError, match="other aggregates"):
        tested.restarted(driver({"count": True}).operator)
