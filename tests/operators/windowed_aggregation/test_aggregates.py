"""Aggregates of numbers, and how values that are not numbers are handled."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.errors import UserError
from tidegate.kernels.compiled import compiled
from tidegate.operators.testing.driver import Driver
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig, aggregates
from tidegate.operators.windowed_aggregation.config import Aggregates
from tidegate.operators.windowed_aggregation.state import plan_of

pytestmark = pytest.mark.fast


def driver(aggregate: dict[str, Any]) -> Driver:
    raw = {"input": "in", "window": {"unlimited": True}, "aggregate": aggregate, "emit": "updates"}
    return Driver(WindowedAggregation(WindowedAggregationConfig.model_validate(raw)))


def told(aggregate: dict[str, Any], *values: str) -> Any:
    """The result after those values."""
    tested = driver(aggregate)
    return json.loads([tested.pipe("a", value, 0)[0].value or b"" for value in values][-1])


def test_several_aggregates_are_an_object_and_one_is_bare() -> None:
    every = {"count": True} | {name: {"field": "n"} for name in ("sum", "min", "max", "avg")}
    assert told(every, '{"n":1}', '{"n":4.5}') == {"count": 2, "sum": 5.5, "min": 1, "max": 4.5, "avg": 2.75}
    assert told({"sum": True}, "1", "2") == 3


def test_results_have_the_names_that_the_configuration_gives_them() -> None:
    several = {"n": "count", "worst": {"max": "w.delay"}, "gust": {"max": "w.gust"}, "least": {"min": {"field": "a.b"}}}
    found = told(several, '{"w":{"delay":3,"gust":40},"a.b":7}', '{"a.b":8,"w":{"delay":9,"gust":20}}')
    assert found == {"n": 2, "worst": 9, "gust": 40, "least": 7}
    assert list(found) == ["n", "worst", "gust", "least"]
    assert told({"n": "count"}, "x") == {"n": 1}, "one result with a name of its own is an object"
    assert told({"max": {"min": True}}, "4", "3") == {"max": 3}, "also with the name of a kind"


def test_a_field_with_a_dot_in_its_name_is_a_top_level_field_unless_it_is_a_path() -> None:
    assert told({"sum": {"field": "w.n"}}, '{"w.n":1,"w":{"n":2}}') == 1
    assert told({"sum": {"path": "w.n"}}, '{"w.n":1,"w":{"n":2}}') == 2


def test_words_do_not_depend_on_the_order_in_which_results_are_named() -> None:
    named = {"worst": {"max": "a"}, "n": "count", "least": {"min": "b"}, "sum": {"field": "c"}}
    orders = [dict(named), dict(reversed(named.items()))]
    plans = [plan_of(Aggregates.model_validate(order)) for order in orders]
    assert plans[0][0].planned == plans[1][0].planned == ("sum", "least", "n", "worst")
    assert plans[0][1] == plans[1][1]


LARGEST, SMALLEST = 2**63 - 1, -(2**63)
wholes = st.lists(st.integers(SMALLEST, LARGEST) | st.sampled_from([LARGEST, SMALLEST, 0, 1, -1]), min_size=1)


@given(numbers=wholes)
def test_whole_numbers_are_summed_exactly(numbers: list[int]) -> None:
    result = told({"sum": True, "avg": True}, *map(str, numbers))
    assert result == {"sum": sum(numbers), "avg": sum(numbers) / len(numbers)}


@given(numbers=wholes, others=wholes)
def test_sessions_that_merge_have_the_exact_sum_of_both(numbers: list[int], others: list[int]) -> None:
    raw = {"input": "in", "window": {"session": "10ms", "grace": "1d"}, "aggregate": {"sum": True}, "emit": "updates"}
    tested = Driver(WindowedAggregation(WindowedAggregationConfig.model_validate(raw)))
    for at, number in [*((0, number) for number in numbers), *((20, number) for number in others)]:
        tested.pipe("a", str(number), at)
    [*_, merged] = tested.pipe("a", "0", 10)
    assert json.loads(merged.value or b"") == sum(numbers) + sum(others)


def test_a_sum_beyond_its_range_is_the_nearest_double() -> None:
    words = np.zeros(3, np.int64)
    plan = aggregates.plan([aggregates.SUM], [0])
    numbers = aggregates.Numbers(np.full((1, 1), LARGEST), np.zeros((1, 1)), np.zeros((1, 1), np.bool_))
    words[0], words[2] = LARGEST, 2**30 << 32
    add_row(aggregates.Words(words, words.view(np.float64)), plan, numbers)
    [result] = aggregates.Writing(plan, ("sum",), ("sum",), is_object=False).results(words[None, :3]).to_pylist()
    assert json.loads(result) == float(2**94 + 2**64 - 2)


@compiled
def add_row(words: aggregates.Words, plan: aggregates.Plan, numbers: aggregates.Numbers) -> None:
    aggregates.add(words, 0, plan, numbers, 0)


def test_the_largest_whole_number_is_kept() -> None:
    large = 2**62
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


@pytest.mark.parametrize(
    ("value", "sum_"),
    [
        (r'{"n":1,"s":"\ud83d"}', 1),
        ('{"n":1,"big":1e400}', 1),
        ('{"n":1,"n":2}', 2),
        (r'{"\u006e":3}', 3),
        ('{"n":-0}', 0),
        ('{"n":18446744073709551617}', 2.0**64),
        ('{"n":9223372036854775807}', 2**63 - 1),
        ('{"x":{"n":1},"n" : 7 ,"y":[{"n":2}]}', 7),
        ('{"x":' + "[" * 1_023 + "]" * 1_023 + ',"n":8}', 8),
    ],
)
def test_every_json_number_is_read(value: str, sum_: float) -> None:
    assert told({"sum": {"field": "n"}}, value) == sum_


@pytest.mark.parametrize("value", ['{"n":' + "[" * 1_024 + "]" * 1_024 + "}", '{"n":NaN}', "\ufeff1", "\x0c1"])
def test_deeper_nesting_and_invalid_grammar_are_not_json(value: str) -> None:
    tested = driver({"sum": {"field": "n"}})
    tested.pipe("a", value, 0)
    assert [row["cause"] for row in tested.rejected] == ["no number: value is not JSON"]


def test_a_number_beyond_the_range_of_doubles_is_not_a_number() -> None:
    tested = driver({"sum": {"field": "n"}})
    tested.pipe("a", '{"n":1e400}', 0)
    assert [row["cause"] for row in tested.rejected] == ["no number: field is not a number"]


def test_a_state_with_other_aggregates_is_refused() -> None:
    tested = driver({"sum": True})
    tested.pipe("a", "1", 0)
    with pytest.raises(UserError, match="other aggregates"):
        tested.restarted(driver({"count": True}).operator)
