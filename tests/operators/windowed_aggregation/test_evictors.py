"""Which elements evictors remove, what functions receive and may return, and the errors of invalid results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import BufferFull, ConfigurationError, UserError
from tidegate.operators.testing.driver import Driver, Emission
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig

pytestmark = pytest.mark.fast

HERE = __name__
GOOD = {
    "input": "in",
    "window": {"tumbling": "10ms", "grace": "5ms"},
    "aggregate": {"collect": True},
    "emit": "on_time",
}
AFTER = {"when": "after"}
CALLS: list[tuple[Any, ...]] = []


def driver(**changed: Any) -> Driver:
    raw = {name: value for name, value in (GOOD | changed).items() if value is not None}
    return Driver(WindowedAggregation(WindowedAggregationConfig.model_validate(raw)), clock_ms=1_000)


def told(emissions: list[Emission]) -> list[Any]:
    return [emission.value and json.loads(emission.value) for emission in emissions]


def removes_all(values: pa.Array, *_: Any) -> Any:
    return pa.array([True] * len(values))


def remembers(*arguments: Any) -> Any:
    CALLS.append(arguments)
    return np.zeros(len(arguments[0]), np.bool_)


def counts(values: pa.Array, timestamps: Any, element_offsets: Any, *_: Any) -> Any:
    return pa.array([b"%d things" % count for count in np.diff(element_offsets)])


def too_short(*_: Any) -> Any:
    return np.zeros(0, np.bool_)


def numbers(values: pa.Array, *_: Any) -> Any:
    return np.zeros(len(values), np.int64)


def raises(*_: Any) -> Any:
    raise KeyError("amount")


def no_values(values: pa.Array, timestamps: Any, element_offsets: Any, *_: Any) -> Any:
    return pa.array([None] * (len(element_offsets) - 1), pa.binary())


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"evictor": {"count": -1}}, "write 0 or more"),
        ({"evictor": {"time": 5}}, "needs a unit"),
        ({"evictor": {"count": 1, "time": "5m"}}, "not an evictor"),
        ({"evictor": {"delta": {"threshold": float("nan"), "distance": True}}}, "finite"),
        ({"evictor": {"function": "no_module"}}, "module:function"),
        ({"evictor": {"function": {"before": "a:b", "after": "c:d"}, "when": "after"}}, "when each function runs"),
        ({"aggregate": {"function": "a:b", "count": True}}, "computes the whole value"),
        ({"every": 2}, "remove emit"),
        ({"emit": None}, "every: 100"),
        ({"emit": None, "every": 2, "buffer": {"max_keys": 1, "when_full": "spill"}}, "only final results"),
    ],
)
def test_impossible_configurations_are_refused(changed: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(WindowedAggregationConfig, GOOD | changed)
    assert cause in str(refused.value)


def test_an_evictor_with_functions_lists_them() -> None:
    both = read(WindowedAggregationConfig, GOOD | {"evictor": {"function": {"before": "a:b", "after": "c:d"}}})
    distance = {"delta": {"threshold": 1, "distance": "a:b"}}
    assert both.functions() == ("a:b", "c:d")
    value = {"aggregate": {"function": "c:d"}}
    assert read(WindowedAggregationConfig, GOOD | {"evictor": distance} | value).functions() == ("c:d", "a:b")


def test_a_window_without_remaining_elements_still_has_a_result() -> None:
    every = {name: {"field": "n"} for name in ("sum", "min", "max", "avg", "first", "last", "collect")}
    tested = driver(aggregate={"count": True} | every, emit="updates", evictor={"count": 0})
    assert told(tested.pipe("a", '{"n":1}', 1)) == [
        {"count": 0, "sum": 0, "min": None, "max": None, "avg": None, "first": None, "last": None, "collect": []}
    ]


def test_first_last_and_collect_keep_the_json_text_and_the_order_of_arrival() -> None:
    tested = driver(aggregate={"first": True, "last": {"field": "n"}, "collect": {"field": "n"}}, emit="updates")
    tested.pipe("a", ' {"n": [1, {"x": null}]}', 5)
    assert told(tested.pipe("a", '{"n":"é"}', 1)) == [
        {"first": {"n": [1, {"x": None}]}, "last": "é", "collect": [[1, {"x": None}], "é"]}
    ]


def test_a_null_value_is_an_element() -> None:
    assert told(driver(emit="updates").pipe("a", None, 1)) == [[None]]


@pytest.mark.parametrize(
    ("changed", "value", "reason"),
    [
        ({}, "x", "no value: value is not JSON"),
        ({"aggregate": {"first": {"field": "n"}}}, None, "no value: null value"),
        ({"aggregate": {"first": {"field": "n"}}}, "[1]", "no value: value is not a JSON object"),
        ({"aggregate": {"last": {"field": "n"}}}, "{}", "no value: field is missing"),
        ({"evictor": {"delta": {"threshold": 1, "distance": True}}}, '"1"', "no number: value is not a number"),
        ({"evictor": {"delta": {"threshold": 1, "distance": {"field": "n"}}}}, "{}", "no number: field is missing"),
    ],
)
def test_a_record_without_a_required_part_is_rejected(changed: Any, value: str | None, reason: str) -> None:
    tested = driver(**changed)
    tested.pipe("a", value, 5)
    assert [row["cause"] for row in tested.rejected] == [reason]
    assert tested.stream_time == -1


def test_a_function_receives_the_elements_their_times_and_the_offsets_of_each_window() -> None:
    CALLS.clear()
    tested = driver(window={"hopping": "10ms", "advance": "5ms", "grace": 0}, evictor={"function": f"{HERE}:remembers"})
    for key, value, timestamp in (("a", "1", 5), ("a", "2", 7), ("b", "3", 6)):
        tested.pipe(key, value, timestamp)
    tested.pipe("a", "4", 40)
    [(values, timestamps, offsets, windows, context)] = CALLS
    assert values.to_pylist() == [b"1", b"2", b"3", b"1", b"2", b"3"]
    assert (timestamps.tolist(), offsets.tolist()) == ([5, 7, 6, 5, 7, 6], [0, 2, 3, 5, 6])
    assert (windows.key.to_pylist(), windows.start.tolist()) == ([b"a", b"b", b"a", b"b"], [0, 0, 5, 5])
    assert windows.end.tolist() == [10, 10, 15, 15]
    assert (context.stream_time.tolist(), context.clock_ms) == ([40] * 4, 1_000)


def test_functions_receive_no_clock_in_an_idle_advance() -> None:
    CALLS.clear()
    tested = driver(evictor={"function": f"{HERE}:remembers", "when": "after"})
    tested.pipe("a", "1", 5)
    tested.advance(12)
    assert [call[4].clock_ms for call in CALLS] == [None]


def test_a_mask_may_be_an_arrow_array_and_takes_effect_before_or_after_the_value() -> None:
    before, after = (driver(emit="updates", evictor={"function": f"{HERE}:removes_all"} | when) for when in ({}, AFTER))
    assert told(before.pipe("a", "1", 1)) == [[]]
    assert [told(after.pipe("a", value, 1)) for value in "12"] == [[[1]], [[2]]]
    assert [row["arrival"] for row in after.held()] == [-1]


def test_the_value_of_a_function_is_emitted_unchanged() -> None:
    tested = driver(aggregate={"function": f"{HERE}:counts"}, emit="updates")
    assert [tested.pipe("a", "x", 1)[0].value for _ in range(2)] == [b"1 things", b"2 things"]
    assert driver(aggregate={"function": f"{HERE}:no_values"}, emit="updates").pipe("a", "x", 1)[0].value is None


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"evictor": {"function": f"{HERE}:too_short"}}, "gives 0 answers for 1 elements"),
        ({"evictor": {"function": f"{HERE}:numbers"}}, "gives an array of int64, not an array of bool"),
        ({"evictor": {"function": f"{HERE}:raises"}}, "fails: KeyError: 'amount'"),
        ({"evictor": {"delta": {"threshold": 1, "distance": f"{HERE}:too_short"}}}, "gives an array of bool"),
        ({"aggregate": {"function": f"{HERE}:too_short"}}, "gives an array of bool, not an Arrow array"),
        ({"aggregate": {"function": f"{HERE}:raises"}}, "aggregate's function fails"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_function(changed: dict[str, Any], fault: str) -> None:
    tested = driver(emit="updates", **changed)
    with pytest.raises(UserError, match=HERE) as refused:
        tested.pipe("a", "1", 1)
    assert fault in str(refused.value)
    assert "fix the function" in refused.value.remedy


def test_a_missing_function_is_an_error_at_the_start() -> None:
    with pytest.raises(UserError, match="evictor cannot be loaded"):
        driver(evictor={"function": f"{HERE}:missing"})


def test_elements_count_in_a_bound_of_bytes() -> None:
    """A window is its key and 16 bytes, an element its value and 16."""
    tested = driver(emit="final", buffer={"max_bytes": 17 + 2 * 18, "when_full": "shut_down"})
    assert [tested.pipe("a", value, 1) for value in ("11", "22")] == [[], []]
    with pytest.raises(BufferFull, match="max_bytes"):
        tested.pipe("a", "33", 1)
    assert told(tested.pipe("a", "44", 15)) == [[11, 22]]


def test_a_changed_evictor_continues_with_the_held_elements() -> None:
    tested = driver(emit="updates", evictor={"count": 5})
    for value in "123":
        tested.pipe("a", value, 1)
    later = tested.restarted(driver(emit="updates", evictor={"count": 2}).operator)
    assert told(later.pipe("a", "4", 1)) == [[3, 4]]


def test_an_operator_cannot_change_between_windows_with_and_without_elements() -> None:
    without, keeping = driver(aggregate={"count": True}, emit="updates"), driver(emit="updates")
    for tested, other in ((without, keeping), (keeping, without)):
        tested.pipe("a", "1", 1)
        with pytest.raises(UserError, match="other aggregates"):
            tested.restarted(other.operator)


def test_a_window_shows_its_last_result_and_none_before_that() -> None:
    tested = driver(window={"unlimited": True}, emit=None, every=2)
    tested.pipe("a", "1", 1)
    assert [row["value"] for row in tested.held()] == [None, b"1"]
    tested.pipe("a", "2", 2)
    tested.pipe("a", "3", 3)
    assert [row["value"] for row in tested.held()] == [b"[1,2]", b"1", b"2", b"3"]
