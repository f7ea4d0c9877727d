"""Steps that call a function of the user's own: what becomes of each row, and what a function may return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.pipelines.test_stateless_steps import place, rows_of, values_of
from tidegate.contracts.errors import UserError
from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.records import Records, Row
from tidegate.contracts.values import Values, schema_of
from tidegate.operators.options.user_functions import BatchFunction
from tidegate.operators.pipeline.config import FilterBy, FlatMap, Map, PipelineConfig, Stateful
from tidegate.operators.pipeline.evaluated.calling import FunctionStep
from tidegate.operators.pipeline.rules.steps import Called
from tidegate.operators.pipeline.strategies import pipeline_configs
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Advance, Flush, Partition
from tidegate.testing import check_batch_function

pytestmark = pytest.mark.fast

N = schema_of({"n": "int64"})
Function = Callable[[pa.RecordBatch], Any]


def twice(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.multiply(rows["delay"], 2)})


def each_minute(rows: pa.RecordBatch) -> pa.RecordBatch:
    counts = rows["delay"].to_pylist()
    found = [{"row": row, "n": n} for row, count in enumerate(counts) for n in range(count)]
    return pa.RecordBatch.from_pylist(found, pa.schema([*N, ("row", pa.int64())]))


def roots(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": [int(delay**0.5) for delay in rows["delay"].to_pylist()]}, N)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that a configuration can name, with the functions of this file."""
    module = ModuleType("legs")
    module.__dict__.update({each.__name__: each for each in (twice, each_minute, roots)})
    monkeypatch.setitem(sys.modules, "legs", module)
    yield module


def step(verb: str, function: Function, module: ModuleType) -> Called:
    module.__dict__["tested"] = function
    if verb == "filter":
        return FilterBy.model_validate({"filter": {"function": "legs:tested"}})
    kind = Map if verb == "map" else FlatMap
    return kind.model_validate({verb: "legs:tested", "emits": {"n": "int64"}})


def sift(verb: str, function: Function, module: ModuleType, *rows: Any) -> Sifted:
    return FunctionStep(step(verb, function, module), place())(Flow.of_input(Records.from_rows(rows_of(*rows))))


def delays(*values: Any) -> list[dict[str, Any]]:
    return [{"delay": value} for value in values]


def test_a_filter_keeps_the_values_of_the_rows_that_the_function_chooses(module: ModuleType) -> None:
    value = b' {"delay" : 20, "other": [1,2 ]} '
    sifted = sift("filter", lambda rows: pc.greater(rows["delay"], 15), module, value, *delays(15, None))
    assert (values_of(sifted), sifted.filtered) == ([value], 2), "null does not choose a row"
    assert [row.time_only for row in sifted.flow.rows.rows()] == [False, True, True]


def test_a_map_replaces_each_value_by_an_object_of_the_fields_that_the_function_makes(module: ModuleType) -> None:
    sifted = sift("map", twice, module, *delays(4, None))
    assert (values_of(sifted), sifted.added, sifted.filtered) == ([b'{"n":8}', b'{"n":null}'], 0, 0)


def test_a_function_sees_decimals_dates_and_times_in_arrow_s_types(module: ModuleType) -> None:
    fields = {"price": "decimal(9,2)", "day": "date", "at": "timestamp"}
    value = b'{"price": 1.25, "day": "2013-01-02", "at": "2013-01-02T05:00:00.000001Z"}'
    module.__dict__["tested"] = lambda rows: pa.record_batch({name: rows[name] for name in fields}, schema_of(fields))
    made = Map.model_validate({"map": "legs:tested", "emits": fields})
    flow = Flow.of_input(Records.from_rows(rows_of(value)))
    sifted = FunctionStep(made, place(Values.of_fields(schema_of(fields))))(flow)
    assert values_of(sifted) == [b'{"price":1.25,"day":"2013-01-02","at":"2013-01-02T05:00:00.000001Z"}']


def test_a_flat_map_makes_any_number_of_rows_of_each_with_its_key_and_time(module: ModuleType) -> None:
    sifted = sift("flat_map", each_minute, module, *delays(2, 0, 1))
    found = [(row.key, row.value, row.timestamp, row.time_only) for row in sifted.flow.rows.rows()]
    assert [(key, time, is_mark) for key, _, time, is_mark in found] == [
        (b"k", 10, False),
        (b"k", 10, False),
        (b"k", 11, True),
        (b"k", 12, False),
    ]
    assert values_of(sifted) == [b'{"n":0}', b'{"n":1}', b'{"n":0}']
    assert (sifted.added, sifted.filtered, sifted.flow.source.tolist()) == (1, 1, [0, 0, 1, 2])


def test_the_results_of_a_flat_map_are_in_the_order_of_the_rows(module: ModuleType) -> None:
    shuffled = lambda rows: pa.record_batch({"row": [1, 0, 1], "n": [1, 2, 3]})  # noqa: E731
    assert values_of(sift("flat_map", shuffled, module, *delays(0, 0))) == [b'{"n":2}', b'{"n":1}', b'{"n":3}']


def test_rows_at_which_a_function_fails_are_rejected_and_the_others_go_on(module: ModuleType) -> None:
    """The function is called with all rows, then with halves, until it is called with each that fails alone."""
    calls: list[int] = []

    def failing(rows: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(rows.num_rows)
        return roots(rows)

    sifted = sift("map", failing, module, *delays(1, 4, None, 9), {"delay": "late"})
    assert values_of(sifted) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    causes = dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True))
    assert causes[2].startswith("legs:tested fails: TypeError: unsupported operand")
    assert causes[4].startswith("value: ")
    assert [row.timestamp for row in sifted.flow.rows.rows()] == [10, 11, 13], "rejected rows move no time"
    assert calls == [4, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("message", "said"),
    [("bad \ud800", "bad \\ud800"), ("two\nlines", "two lines"), ("x" * 1_000, f"{'x' * 163} [...]")],
)
def test_whatever_a_function_says_is_one_line_of_the_cause(message: str, said: str, module: ModuleType) -> None:
    def failing(rows: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError(message)

    [cause] = sift("map", failing, module, *delays(1)).causes
    assert cause == f"legs:tested fails: ValueError: {said}"


def test_each_row_may_fail_for_a_reason_of_its_own(module: ModuleType) -> None:
    def failing(rows: pa.RecordBatch) -> pa.Array:
        raise ValueError(f"{rows['delay'].to_pylist()} {'x' * 500}\n")

    module.__dict__["tested"] = failing
    steps = [{"filter": {"function": "legs:tested"}}, {"name": "held", "kind": "deduplicate", "within": "forever"}]
    raw = {"input": "in", "value": {"json": {"delay": "int64"}}, "steps": steps}
    partition = Partition(operator_for(PipelineConfig.model_validate(raw)), 0)
    partition.play(rows_of(*delays(*range(300))))
    causes = [row["cause"] for row in partition.trace.rejected]
    assert (len(set(causes)), max(map(len, causes)) <= 200) == (300, True)


def test_a_value_that_cannot_be_written_rejects_its_row(module: ModuleType) -> None:
    module.__dict__["tested"] = lambda rows: pa.record_batch({"n": pc.divide(1.0, rows["delay"].cast("float64"))})
    made = Map.model_validate({"map": "legs:tested", "emits": {"n": "float64"}})
    sifted = FunctionStep(made, place())(Flow.of_input(Records.from_rows(rows_of(*delays(0, 2)))))
    assert (values_of(sifted), sifted.causes) == ([b'{"n":0.5}'], ("its values cannot be written as JSON",))


def test_a_column_of_nulls_alone_may_lack_a_type(module: ModuleType) -> None:
    nothing = lambda rows: pa.record_batch({"n": [None] * rows.num_rows})  # noqa: E731
    assert values_of(sift("map", nothing, module, *delays(1))) == [b'{"n":null}']
    none = lambda rows: pa.record_batch({"n": [], "row": []})  # noqa: E731
    assert sift("flat_map", none, module, *delays(1, 2)).filtered == 2


def batch(**columns: Any) -> Function:
    return lambda rows: pa.record_batch(columns)


@pytest.mark.parametrize(
    ("verb", "function", "fault"),
    [
        ("filter", lambda rows: pa.array([True]), "returns 1 rows for 2"),
        ("filter", lambda rows: rows["delay"], "returns an array of int64, not an Arrow array of bool"),
        ("filter", lambda rows: [True, False], "returns list, not an Arrow array of bool"),
        ("map", batch(n=[1]), "returns 1 rows for 2"),
        ("map", batch(n=["1", "2"]), "returns n: string, not n: int64"),
        ("map", batch(m=[1, 2]), "returns m: int64, not n: int64"),
        ("map", batch(n=[1, 2], m=[1, 2]), "returns n: int64, m: int64, not n: int64"),
        ("map", lambda rows: rows["delay"], "returns an array of int64, not a record batch"),
        ("map", lambda rows: None, "returns NoneType, not a record batch"),
        ("flat_map", batch(n=[1, 2]), "returns n: int64, not n: int64, row: int64"),
        ("flat_map", batch(n=[1, 2], row=[0, None]), "returns null in the column row"),
        ("flat_map", batch(n=[1, 2], row=[0, 2]), "returns a row from 0 to 2 for 2 rows, which begin with 0"),
        ("flat_map", batch(n=[1, 2], row=[-1, 1]), "returns a row from -1 to 1 for 2 rows, which begin with 0"),
    ],
)
def test_a_function_that_returns_what_it_must_not_stops_the_pipeline(
    verb: str, function: Function, fault: str, module: ModuleType
) -> None:
    with pytest.raises(UserError) as stopped:
        sift(verb, function, module, *delays(1, 2))
    assert str(stopped.value).startswith(f"the function of {verb} {fault}")


def test_a_function_that_cannot_be_loaded_stops_the_pipeline_before_its_first_record(module: ModuleType) -> None:
    held = {"name": "held", "kind": "deduplicate", "within": "forever"}
    for written, problem in (("legs:lost", "cannot be loaded"), ("legs:twice_emitting_text", "emits n: string")):
        module.__dict__["twice_emitting_text"] = BatchFunction(twice, schema_of({"n": "string"}))
        raw = {"input": "in", "steps": [{"map": written, "emits": {"n": "int64"}}, held]}
        with pytest.raises(UserError, match=problem):
            Partition(operator_for(PipelineConfig.model_validate(raw)), 0)


def test_the_file_must_allow_the_modules_of_the_functions() -> None:
    steps = [
        {"filter": {"function": "legs:known"}},
        {"map": "legs:twice", "emits": {"n": "int64"}},
        {"flat_map": "stops:of", "emits": {"n": "int64"}},
        {"name": "held", "kind": "deduplicate", "within": "forever"},
    ]
    config = PipelineConfig.model_validate({"input": "in", "steps": steps})
    assert config.functions() == ("legs:known", "legs:twice", "stops:of")
    assert PipelineConfig.model_validate(config.model_dump(mode="json", exclude_defaults=True)) == config


def flat_mapped(behind: dict[str, Any]) -> Partition:
    steps = [{"flat_map": "legs:each_minute", "emits": {"n": "int64"}}, behind]
    raw = {"input": "in", "value": {"json": {"delay": "int64"}}, "steps": steps}
    return Partition(operator_for(PipelineConfig.model_validate(raw)), 0)


def test_an_idle_advance_reaches_the_operator_behind_a_flat_map() -> None:
    played = flat_mapped({"name": "held", "kind": "suppression", "until": {"time_limit": "5ms"}})
    played.play([Row(b"a", b'{"delay":2}', 10, 7)])
    assert (played.trace.emissions, played.state.stream_time) == ([], 10)
    played.play(Advance(5))
    [emission] = played.trace.emissions
    assert (emission["value"], emission["source"], played.state.stream_time) == (b'{"n":1}', -1, 15)


def test_rows_that_an_operator_refuses_behind_a_flat_map_are_no_records_of_the_input() -> None:
    """The operator counts what reaches it; both results of the late record have its offset as their source."""
    window = {"tumbling": "5ms", "grace": "0ms"}
    counts = {"name": "n", "kind": "windowed_aggregation", "window": window, "aggregate": {"count": True}}
    played = flat_mapped(counts | {"emit": "final"})
    result = played.play([Row(b"a", b'{"delay":1}', 50, 7), Row(b"a", b'{"delay":2}', 3, 8)])
    late = [(row["value"], row["offset"], row["source"], row["topic"]) for row in played.trace.late]
    assert late == [(b'{"n":0}', 1, 8, "step:n"), (b'{"n":1}', 2, 8, "step:n")]
    assert (result.counts.records_in, result.counts.applied, result.counts.late) == (2, 2, 0)
    assert (result.ledger["n"].records_in, result.ledger["n"].late) == (3, 2)
    played.play(Flush())


@pytest.mark.parametrize("kind", [FilterBy, Map, FlatMap])
def test_the_laws_draw_pipelines_with_functions_before_and_behind_operators(kind: type) -> None:
    for order in (slice(None), slice(None, None, -1)):
        find(pipeline_configs(), lambda config, order=order: _stands_first(config.steps[order], kind))


def _stands_first(steps: Any, kind: type) -> bool:
    return isinstance(steps[0], kind) and any(isinstance(step, Stateful) for step in steps)


@many
@given(values=st.lists(st.none() | st.integers(-3, 30), max_size=9), cut=st.integers(0, 9))
@pytest.mark.parametrize(("verb", "function"), [("map", roots), ("flat_map", each_minute)])
def test_what_becomes_of_a_row_does_not_depend_on_those_beside_it(
    verb: str, function: Function, values: list[int | None], cut: int
) -> None:
    made = (Map if verb == "map" else FlatMap).model_validate(
        {verb: f"legs:{function.__name__}", "emits": {"n": "int64"}}
    )
    called = FunctionStep(made, place())
    rows = rows_of(*delays(*values))
    parts = [called(Flow.of_input(Records.from_rows(part))) for part in (rows[:cut], rows[cut:])]
    whole = called(Flow.of_input(Records.from_rows(rows)))
    assert whole.flow.rows.rows() == [row for part in parts for row in part.flow.rows.rows()]
    assert whole.causes == tuple(cause for part in parts for cause in part.causes)


ROWS = pa.record_batch({"delay": [1, 4, None, 9]})


def test_the_check_passes_functions_whose_results_depend_on_each_row_alone() -> None:
    check_batch_function(BatchFunction(lambda rows: pc.is_valid(rows["delay"]), None), ROWS)
    check_batch_function(BatchFunction(twice, N), ROWS)
    check_batch_function(BatchFunction(each_minute, N), ROWS.slice(0, 2))
    check_batch_function(BatchFunction(roots, N), ROWS, may_fail=True)


def above_mean(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater(rows["delay"], pc.mean(rows["delay"]))


def test_the_check_names_the_row_and_the_cut_of_the_first_difference() -> None:
    with pytest.raises(AssertionError, match=r"above_mean makes something else of row 3 alone: \[\], with all rows"):
        check_batch_function(BatchFunction(above_mean, None), ROWS)


def test_the_check_finds_rows_at_which_the_function_fails() -> None:
    with pytest.raises(AssertionError, match=r"row 2: .*roots fails: TypeError"):
        check_batch_function(BatchFunction(roots, N), ROWS)


def test_an_order_of_results_that_the_rows_do_not_have_makes_no_difference() -> None:
    """Only what is made of one row has an order."""
    backwards = lambda rows: each_minute(rows).take(pa.array(range(each_minute(rows).num_rows)[::-1]))  # noqa: E731
    check_batch_function(BatchFunction(backwards, N), ROWS.slice(0, 2))
