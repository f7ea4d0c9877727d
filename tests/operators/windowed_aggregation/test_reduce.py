"""Windows whose records a function merges: what they keep, how often it is called, and the errors of wrong results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.contracts.records import Records, Row
from tidegate.operators.testing.driver import Driver
from tidegate.operators.testing.reducers import total_and_most
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig
from tidegate.testing import check_merge_function

pytestmark = pytest.mark.fast

HERE = __name__
N = pa.schema({"n": pa.int64()})
CALLS: list[int] = []


def total(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    CALLS.append(left.num_rows)
    return pa.record_batch({"n": pc.add(left["n"], right["n"])})


def raises(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("lost")


def of_text(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": left["n"].cast("string")})


def too_short(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    return left.slice(1)


def infinite(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"x": pc.divide(left["x"], 0.0)})


def options(function: str = "total", **changed: Any) -> dict[str, Any]:
    reduction = {"function": f"{HERE}:{function}", "emits": changed.pop("emits", {"n": "int64"})}
    raw = {"input": "in", "window": {"tumbling": "10ms", "grace": "5ms"}, "emit": "final"}
    return raw | {"aggregate": {"reduce": reduction}} | changed


def driver(function: str = "total", **changed: Any) -> Driver:
    config = WindowedAggregationConfig.model_validate(options(function, **changed))
    return Driver(WindowedAggregation(config), clock_ms=1_000)


def batch(tested: Driver, values: list[Any], first: int = 0, time: int | None = 1) -> Any:
    """What one batch of records of the key `a` with these values does; without a time they are 1 ms apart."""
    rows = [Row(b"a", json.dumps(value).encode(), at if time is None else time, at) for at, value in enumerate(values)]
    return tested.state.step(Records.from_rows([row._replace(offset=row.offset + first) for row in rows]), 1_000)


def held_values(tested: Driver) -> list[Any]:
    return [json.loads(row["value"]) for row in tested.held() if row["arrival"] >= 0]


def results(step: Any) -> list[Any]:
    return [json.loads(value) for value in step.emissions["value"].to_pylist()]


def test_a_window_keeps_one_value_however_many_records_come() -> None:
    tested = driver()
    for first in range(0, 100, 10):
        batch(tested, [{"n": n} for n in range(first, first + 10)], first)
        assert len(held_values(tested)) == 1
    assert held_values(tested) == [{"n": sum(range(100))}]
    [emission] = tested.advance(100)
    assert emission.value == b'{"n":4950}'


def test_the_function_is_called_once_per_doubling_of_the_records_of_a_window() -> None:
    tested = driver()
    CALLS.clear()
    batch(tested, [{"n": 1}] * 1_000)
    assert (held_values(tested), CALLS) == ([{"n": 1_000}], [500, 250, 125, 62, 31, 16, 8, 4, 2, 1])
    CALLS.clear()
    batch(tested, [{"n": 1}], 1_000)
    assert (held_values(tested), CALLS) == ([{"n": 1_001}], [1])


def test_every_update_has_what_was_merged_so_far() -> None:
    """More updates in one batch than are listed at once."""
    tested = driver(emit="updates", window={"unlimited": True})
    assert [each["n"] for each in results(batch(tested, [{"n": 1}] * 1_000))] == list(range(1, 1_001))


def test_sessions_that_merge_have_what_both_were_merged_into() -> None:
    """the gap is 5: 10 and 18 are apart until 14 comes"""
    tested = driver(emit="updates", window={"session": "5ms", "grace": "10ms"})
    values = [(10, 1), (18, 2), (11, 4), (14, 8)]
    told = [tested.pipe("a", json.dumps({"n": n}), time)[-1].value for time, n in values]
    assert told == [b'{"n":1}', b'{"n":2}', b'{"n":5}', b'{"n":15}']
    assert held_values(tested) == [{"n": 15}]


def test_a_value_that_cannot_be_merged_is_rejected_with_the_reason() -> None:
    tested = driver()
    step = batch(tested, [{"n": 1}, {"n": "x"}, [1], {"n": 2}, {}])
    assert step.rejected["offset"].to_pylist() == [1, 2]
    assert step.rejected["cause"].to_pylist() == ["value: n is no int64", "value: not a JSON object"]
    null = tested.state.step(Records.from_rows([Row(b"a", None, 1, 9)]), 1_000)
    assert null.rejected["cause"].to_pylist() == ["value: null"]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("raises", "fails: ValueError: lost"),
        ("of_text", "returns n: string, not n: int64"),
        ("too_short", "returns 0 rows for 1"),
    ],
)
def test_a_function_that_does_not_merge_stops_the_operator(function: str, problem: str) -> None:
    with pytest.raises(UserError) as stopped:
        batch(driver(function), [{"n": 1}, {"n": 2}])
    assert (stopped.value.problem, stopped.value.value) == (f"the function of reduce {problem}", f"{HERE}:{function}")


def test_a_number_that_json_does_not_have_stops_the_operator() -> None:
    with pytest.raises(UserError, match="returns a number that JSON does not have"):
        batch(driver("infinite", emits={"x": "float64"}), [{"x": 1}, {"x": 2}])


def test_a_function_that_is_not_there_stops_the_operator_before_its_first_record() -> None:
    with pytest.raises(UserError, match="the function of reduce cannot be loaded"):
        driver("absent")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"evictor": {"count": 10}}, "merged records cannot be removed"),
        ({"buffer": {"max_bytes": "1MiB", "when_full": "spill"}}, "have no bound"),
        ({"aggregate": {"count": True, **options()["aggregate"]}}, "the function computes the whole value"),
        (
            {"aggregate": {"function": f"{HERE}:total", **options()["aggregate"]}},
            "the function computes the whole value",
        ),
        ({"aggregate": {"reduce": {"function": f"{HERE}:total"}}}, "required"),
    ],
)
def test_what_does_not_go_with_reduce_is_refused(changed: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(WindowedAggregationConfig, options() | changed)
    assert cause in str(refused.value)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (lambda rows: rows, "values do not have"),
        (lambda rows: rows.select(n="CAST(delay AS double)"), "values do not have"),
        (lambda rows: rows.select(n="delay"), None),
    ],
)
def test_the_values_of_a_pipeline_must_have_the_fields(steps: Callable[[Any], Any], problem: str | None) -> None:
    app = tg.Application("flights", kafka="127.0.0.1:9092", lake="./lake", keep_output="30d")
    rows = steps(app.stream("departures", name="totals", value=tg.json({"delay": "int64"})))
    windows = rows.filter("true").window(tg.tumbling("1h", grace=0))
    windows.reduce(total, emits={"n": "int64"}).filter("n > 3").keep()
    if problem is None:
        app.check()
        return
    with pytest.raises(ConfigurationError) as refused:
        app.check()
    [found] = refused.value.problems
    assert problem in found.cause and "select, or map" in found.remedy


ROWS = pa.record_batch({"n": [1, 2, None, -5, 2**62, 2**62], "most": [1, None, 3, 4, 0, 7]})


def test_the_check_passes_functions_for_which_no_order_matters() -> None:
    check_merge_function(total_and_most, ROWS)


@pytest.mark.parametrize(
    ("merge", "difference"),
    [
        (lambda left, right: left, "rows 0, 1 are merged into {'n': 1}, and in the other order into {'n': 2}"),
        (
            lambda left, right: pa.record_batch({"n": pc.divide(pc.add(left["n"], right["n"]), 2)}),
            "rows 0, 0, 2 are merged into .*, and with the last two merged first into",
        ),
        (
            lambda left, right: pa.record_batch({"n": pc.add(pc.add(left["n"], right["n"]), left.num_rows)}),
            "rows 0, 0 are merged into {'n': 18}, and alone into {'n': 3}",
        ),
    ],
)
def test_the_check_names_the_rows_that_make_a_difference(merge: Callable[..., Any], difference: str) -> None:
    with pytest.raises(AssertionError, match=difference):
        check_merge_function(merge, pa.record_batch({"n": [1, 2, 7, 12]}))


def test_the_check_finds_what_json_does_not_keep() -> None:
    texts = pa.record_batch({"part": pa.array(["1 ", " [1, 2]"], pa.large_string())})
    with pytest.raises(AssertionError, match="after they were written as JSON"):
        check_merge_function(
            lambda left, right: pa.record_batch({"part": pc.max_element_wise(left["part"], right["part"])}), texts
        )
