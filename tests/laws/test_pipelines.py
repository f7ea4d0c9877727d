"""The laws of pipelines: random chains of operators and stateless steps, under any cut, restart and undo."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate.contracts.errors import BufferFull
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.contracts.values import Values
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline import INPUT, Pipeline, Step
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import Filter, PipelineConfig, Require
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.passage.stateless import merging
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.strategies import joined_pipeline_configs
from tidegate.operators.registry import config_type, operator_for
from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.testing import strategies
from tidegate.operators.testing.laws import Advance, Flush, Table, batches, small

pytestmark = pytest.mark.fast


def holding(name: str, kind: str, reads: str, length: int | None = None, **options: Any) -> Step:
    """A step of an operator of that kind."""
    rules = config_type(kind).model_validate({"input": "in", **options})
    return Step(name=name, does=operator_for(rules), reads=(reads,), hold=rules.hold(length))


BYTES = Place(key="bytes", values=Values.of_bytes(), windows="none")


def stateless(name: str, step: Filter | Require, reads: str) -> Step:
    """A step of an expression."""
    return Step(name=name, does=compiled([step], BYTES), reads=(reads,))


FILTERED = stateless("short", Filter(filter="value IS NULL OR octet_length(value) < 3"), INPUT)
REQUIRED = stateless("odd", Require(require="timestamp % 2 = 1", reason="its time is even"), "short")
GRACE = {"tumbling": "5ms", "grace": "3ms"}
COUNT = {"count": True}


def counted(reads: str, emit: str) -> Step:
    return holding("counts", "windowed_aggregation", reads, window=GRACE, aggregate=COUNT, emit=emit)


def closed(reads: str) -> Step:
    return holding("final", "suppression", reads, 5, until="window_close", grace="3ms")


CHAINS: dict[str, list[Step]] = {
    "updates until the window closes": [counted(INPUT, "updates"), closed("counts")],
    "first records, counted behind a filter": [
        FILTERED,
        REQUIRED,
        holding("first", "deduplicate", "odd", within="4ms", grace="2ms"),
        counted("first", "updates"),
        closed("counts"),
        stateless("few", Filter(filter="timestamp % 3 > 0"), "final"),
    ],
    "held back twice": [
        holding("slow", "suppression", INPUT, until={"time_limit": "4ms"}),
        holding("slower", "suppression", "slow", until={"time_limit": "6ms"}, max_lateness="9ms"),
        counted("slower", "final"),
    ],
    "a bound within": [
        holding("slow", "suppression", INPUT, until={"time_limit": "4ms"}),
        holding(
            "bounded",
            "suppression",
            "slow",
            until={"time_limit": "9ms"},
            buffer={"max_keys": 2, "when_full": "shut_down"},
        ),
    ],
    "branches that meet again": [
        FILTERED,
        holding("slow", "suppression", "short", until={"time_limit": "4ms"}),
        holding("first", "deduplicate", INPUT, within="4ms", grace="2ms"),
        Step(name="both", does=merging(), reads=("slow", "first")),
        counted("both", "final"),
    ],
}

chains = pytest.mark.parametrize("name", CHAINS)


class Played:
    """One partition of a pipeline, and everything that it made visible."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.storage = MemoryStorage(small(pipeline.layout))
        self.state = pipeline.open(self.storage)
        self.changes: list[pa.Table] = []
        self.seen: dict[str, list[Any]] = {"emissions": [], "late": [], "rejected": []}
        self.ledger: dict[str, np.ndarray[Any, Any]] = {}

    def play(self, step: Any) -> StepResult | None:
        """Play a batch, an advance or a flush; None if a bound refuses an advance or a flush."""
        try:
            result = self.attempt(step)
        except BufferFull:
            return None
        for name, rows in self.seen.items():
            rows += getattr(result, name).to_pylist()
        for name, found in result.ledger.items():
            numbers = np.array([found.records_in, found.applied + found.superseded, found.late, found.rejected])
            self.ledger[name] = self.ledger.get(name, np.zeros(4, np.int64)) + numbers
        self.changes.append(result.changes)
        return result

    def attempt(self, step: Any) -> StepResult:
        if isinstance(step, Advance):
            return self.state.advance(max(0, self.state.stream_time) + step.by_ms)
        if isinstance(step, Flush):
            return self.state.flush()
        return self.state.step(Records.from_rows(step if isinstance(step, list) else []), 12)

    def visible(self) -> Any:
        held = self.state.snapshot().to_pylist()
        for name in ("late", "rejected"):
            self.seen[name].sort(key=lambda row: row["step"])  # stable: the order within each step counts
        return self.seen, {name: list(found) for name, found in self.ledger.items()}, self.state.times(), held


def undisturbed(name: str, history: list[Any], cuts: set[int]) -> Any:
    played = Played(Pipeline(*CHAINS[name]))
    for step in batches(history, cuts):
        result = played.play(step)
        if result is None or result.stopped_at is not None:
            break
    return played.visible()


HOUR = 3_600_000

histories = strategies.histories(events=strategies.mostly(strategies.records, st.sampled_from([Advance(3), Flush()])))
histories = histories.flatmap(strategies.with_marks)


@chains
@many
@given(history=histories, cuts=strategies.cuts, others=strategies.cuts)
def test_the_cut_into_batches_changes_nothing(name: str, history: list[Any], cuts: set[int], others: set[int]) -> None:
    assert undisturbed(name, history, cuts) == undisturbed(name, history, others)


@chains
@many
@given(history=histories, data=st.data())
def test_a_pipeline_rebuilt_from_its_changelog_goes_on_as_if_nothing_had_happened(
    name: str, history: list[Any], data: st.DataObject
) -> None:
    cuts = data.draw(strategies.cuts)
    played = Played(Pipeline(*CHAINS[name]))
    for step in batches(history, cuts):
        result = played.play(step)
        if result is None or result.stopped_at is not None:
            break
        assert played.pipeline.damage(played.storage) is None
        if data.draw(st.booleans()):
            stream_time = played.state.stream_time
            played.storage = MemoryStorage(small(played.pipeline.layout))
            played.state = played.pipeline.open(played.storage)
            played.state.restore(pa.concat_tables(played.changes), stream_time)
        elif data.draw(st.booleans()):
            played.storage = played.storage.copy()
            played.state = played.pipeline.open(played.storage)
    assert played.visible() == undisturbed(name, history, cuts)


@chains
@many
@given(history=histories, data=st.data())
def test_a_batch_and_its_undo_change_nothing(name: str, history: list[Any], data: st.DataObject) -> None:
    cuts = data.draw(strategies.cuts)
    played = Played(Pipeline(*CHAINS[name]))
    for step in batches(history, cuts):
        failed = data.draw(st.sampled_from([None, step, Advance(9), Flush()]))
        if failed is not None:
            before, times = played.state.snapshot(), played.state.times()
            try:
                undo = played.attempt(failed).undo
                played.state.restore(undo, times[next(iter(times))].stream_time)
            except BufferFull:
                pass
            assert (played.state.snapshot(), played.state.times()) == (before, times)
        result = played.play(step)
        if result is None or result.stopped_at is not None:
            break
    assert played.visible() == undisturbed(name, history, cuts)


@many
@given(history=histories, cuts=strategies.cuts)
def test_updates_until_the_window_closes_are_the_final_results(history: list[Any], cuts: set[int]) -> None:
    history = [event for event in history if not isinstance(event, Flush)]
    [seen, *_] = undisturbed("updates until the window closes", history, cuts)
    final = Played(Pipeline(counted(INPUT, "final")))
    for step in batches(history, cuts):
        final.play(step)
    named = ("key", "value", "timestamp", "window_start", "window_end")
    assert [[row[part] for part in named] for row in seen["emissions"]] == [
        [row[part] for part in named] for row in final.seen["emissions"]
    ]


@chains
@many
@given(history=histories, cuts=strategies.cuts)
def test_what_one_step_emits_is_what_the_next_one_receives(name: str, history: list[Any], cuts: set[int]) -> None:
    _, ledger, times, _ = undisturbed(name, history, cuts)
    for counted_rows in ledger.values():
        assert counted_rows[0] == sum(counted_rows[1:])
    for step, time in times.items():
        assert time.received == ledger.get(step, [0])[0]


def test_a_bound_within_stops_before_the_record_that_caused_it() -> None:
    #   in       a0   b1   c2  | d9         time limit 4, then a bound of 2 keys
    #   offsets  0    1    2     3          d makes a, b and c leave the first step
    state = Played(Pipeline(*CHAINS["a bound within"])).state
    rows = [Row(key, b"v", time, at) for at, (key, time) in enumerate([(b"a", 0), (b"b", 1), (b"c", 2), (b"d", 9)])]
    result = state.step(Records.from_rows(rows), 0)
    assert (result.stopped_at, result.stopped_by) == (3, "bounded.buffer.max_keys")
    assert result.counts.records_in == 3
    assert state.times()["slow"] == (2, 3)
    assert state.times()["bounded"].received == 0


def test_a_bound_that_earlier_records_reach_further_down_stops_before_these() -> None:
    #   in       a0   b1   c20  d21  e22   the first step has 2 keys at most, which e exceeds; c releases a and b
    bounds = [{"when_full": "shut_down", "max_keys": keys} for keys in (2, 1)]
    slow = holding("slow", "suppression", INPUT, until={"time_limit": "4ms"}, buffer=bounds[0])
    bounded = holding("bounded", "suppression", "slow", until={"time_limit": "99ms"}, buffer=bounds[1])
    state = Played(Pipeline(slow, bounded)).state
    rows = [(b"a", 0), (b"b", 1), (b"c", 20), (b"d", 21), (b"e", 22)]
    result = state.step(Records.from_rows([Row(key, b"v", time, at) for at, (key, time) in enumerate(rows)]), 0)
    assert (result.stopped_at, result.stopped_by) == (2, "bounded.buffer.max_keys")
    assert state.times()["slow"] == (1, 2)


def test_a_record_that_a_filter_drops_passes_its_time_on_and_one_that_is_rejected_does_not() -> None:
    filtered = Pipeline(FILTERED, REQUIRED, counted("odd", "final"))
    played = Played(filtered)
    played.play([Row(b"a", b"v", 1, 0), Row(b"a", b"a longer value", 7, 1), Row(b"a", b"v", 20, 2)])
    assert played.state.times()["counts"] == (7, 1)
    played.play([Row(b"a", b"a longer value", 9, 3)])
    assert [row["timestamp"] for row in played.seen["emissions"]] == [1]
    assert [(row["step"], row["cause"], row["source"]) for row in played.seen["rejected"]] == [
        ("odd", "its time is even", 2)
    ]


def test_a_refused_record_of_the_input_has_the_bytes_that_it_came_with() -> None:
    steps = [{"select": {"n": "delay"}}, {"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}]
    raw = {"input": "in", "value": {"json": {"delay": "int64"}}, "steps": steps}
    operator = operator_for(config_type("pipeline").model_validate(raw))
    value = b' {"delay": 9, "x":1}'
    rows = [Row(b"a", b'{"delay":1}', 1, 5), Row(None, value, 2, 7, b"\x02\x02h\x02v"), Row(b"a", b'{"delay":2}', 3, 8)]
    [refused] = operator.open(MemoryStorage(operator.layout)).step(Records.from_rows(rows), 0).rejected.to_pylist()
    assert (refused["key"], refused["value"], refused["headers"]) == (None, value, b"\x02\x02h\x02v")
    assert (refused["offset"], refused["topic"]) == (7, None)


def test_a_flush_adds_to_the_measures_of_what_a_step_took_from_the_steps_before_it() -> None:
    first = holding("first", "suppression", INPUT, until={"time_limit": "100ms"})
    second = holding("second", "suppression", "first", until={"time_limit": "100ms"})
    pipeline = Pipeline(first, second)
    state = pipeline.open(MemoryStorage(pipeline.layout))
    state.step(Records.from_rows([Row(b"a", b"v", 1, 0), Row(b"b", b"v", 2, 1)]), 0)
    measures = state.flush().measures
    assert measures["second.lateness_count"] == 2


TWO_BRANCHES = {
    "input": "in",
    "windows": "ignore",
    "steps": [
        {"name": "slow", "kind": "suppression", "until": {"time_limit": "1h"}, "max_lateness": "5ms"},
        {"from": "input", "require": "key <> 'b'::BLOB", "reason": "a b"},
        {"name": "first", "kind": "deduplicate", "within": "5ms", "grace": "1ms"},
    ],
}


COMPLEMENTS = {
    "input": "in",
    "windows": "ignore",
    "steps": [
        {"filter": "key = 'a'::BLOB"},
        {"name": "of_a", "kind": "deduplicate", "within": "5ms", "grace": "1ms"},
        {"from": "input", "filter": "key = 'b'::BLOB"},
        {"name": "of_b", "kind": "deduplicate", "within": "5ms", "grace": "1ms"},
    ],
}


def test_a_record_that_one_branch_drops_and_the_other_refuses_is_refused() -> None:
    #   in      a9     a2    b1    c0        both branches take what is up to 1 late
    #   of_a    takes  late  -     -         the time of a record that a filter drops counts
    #   of_b    -      -     late  -
    played = Played(cast(Pipeline, operator_for(config_type("pipeline").model_validate(COMPLEMENTS))))
    rows = [(b"a", 9), (b"a", 2), (b"b", 1), (b"c", 0)]
    result = played.play([Row(key, b"v", time, at) for at, (key, time) in enumerate(rows)])
    assert result is not None
    assert (result.counts.records_in, result.counts.applied, result.counts.late) == (4, 2, 2)
    assert [(row["source"], row["step"], row["topic"]) for row in played.seen["late"]] == [
        (1, "of_a", None),
        (2, "of_b", None),
    ]


def test_a_record_is_refused_if_no_branch_takes_it() -> None:
    #   in        a9     b8      a7     a2     b1        slow takes what is up to 5 late, first what is up to 1 late
    #   slow      takes  takes   takes  late   late
    #   2, first  takes  reject  late   late   reject
    played = Played(cast(Pipeline, operator_for(config_type("pipeline").model_validate(TWO_BRANCHES))))
    rows = [(b"a", 9), (b"b", 8), (b"a", 7), (b"a", 2), (b"b", 1)]
    result = played.play([Row(key, b"v", time, at) for at, (key, time) in enumerate(rows)])
    assert result is not None
    counts = result.counts
    assert (counts.records_in, counts.applied, counts.late, counts.rejected) == (5, 3, 1, 1)
    refused = played.seen["late"] + played.seen["rejected"]
    assert sorted((row["source"], row["step"], row["topic"]) for row in refused) == [
        (1, "2", "step:2"),
        (2, "first", "step:first"),
        (3, "first", None),
        (3, "slow", None),
        (4, "2", None),
        (4, "slow", None),
    ]


@st.composite
def joinable(draw: st.DrawFn, grace: int) -> list[Row]:
    """Records of which none is late for a join with this grace, out of order; some have no key, and are dropped."""
    rows: list[Row] = []
    time = 0
    visits = st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, grace + 4))
    for key, ahead in draw(st.lists(visits, min_size=4, max_size=20)):
        rows.append(Row(key, b"v", max(0, time - grace) + ahead, len(rows)))
        time = max(time, rows[-1].timestamp)
    return rows


gates = st.lists(st.sampled_from([-1, -1, 4, 9, 15, 30]), max_size=6).map(sorted)
both_gates = st.tuples(gates, gates)
FACTS = TableHistoryConfig.model_validate({"input": "facts", "history_retention": "1h"})
RAIN = Table(FACTS, tuple(Row(key, b"%d" % at, at, at) for at, key in enumerate([b"a", b"b", b"a"] * 4))).state(0)


def joined(config: PipelineConfig, rows: list[Row], cuts: set[int], *gates: list[int]) -> Any:
    """What a chain with joins makes visible, if tables are complete up to these times, batch by batch, then whole.

    `gates`: those of each table. What let a result leave, an input record or a table, depends on the schedule, and so
    does the clock at which a row came to a join that still holds it: they are no part of this.
    """
    played, tables = Played(pipeline_of(config)), [read.table for read in config.reads()]
    for step, *now in zip_longest(batches(rows, cuts), *gates):
        for table, gate in zip_longest(tables, now[: len(tables)]):
            played.state.read_table(RAIN, ALWAYS if gate is None else gate, table)
        played.play(step or [])
    played.state.read_table(RAIN)
    played.play(Advance(HOUR))
    seen, _, times, held = played.visible()
    rows_by_kind = {kind: [row | {"source": None} for row in found] for kind, found in seen.items()}
    return rows_by_kind, times, [row | {"arrived": None} for row in held]


def behind_join(*steps: dict[str, Any]) -> PipelineConfig:
    """A pipeline with these steps behind a join with a grace of 6 ms."""
    join = {"name": "joined", "kind": "stream_table_join", "table": "table", "join": "left", "grace": "6ms"}
    named = [{"name": f"s{at}"} | step if "kind" in step else step for at, step in enumerate(steps)]
    return PipelineConfig.model_validate({"input": "in", "steps": [join | {"before_history": "join"}, *named]})


SLOW = {"kind": "suppression", "until": {"time_limit": "4ms"}}
COUNTS = {"kind": "windowed_aggregation", "window": GRACE, "aggregate": COUNT}
SESSIONS = COUNTS | {"window": {"session": "2ms", "grace": "1ms"}}


def before_join(*steps: dict[str, Any]) -> PipelineConfig:
    """A pipeline with a join with a grace of 6 ms behind these steps, and a suppression behind it."""
    join = {"name": "joined", "kind": "stream_table_join", "table": "table", "join": "left", "grace": "6ms"}
    named = [{"name": f"s{at}"} | step for at, step in enumerate(steps)]
    steps_of = [*named, join | {"before_history": "join"}, {"name": "last", **SLOW}]
    return PipelineConfig.model_validate({"input": "in", "steps": steps_of, "windows": "ignore"})


BEHIND_JOIN = {
    "held back": behind_join(SLOW),
    "held back twice behind a filter": behind_join({"filter": "key <> 'a'::BLOB"}, SLOW, SLOW),
    "counts until the window closes": behind_join(COUNTS | {"emit": "updates"}, {**SLOW, "until": "window_close"}),
    "final counts, held back": behind_join(COUNTS | {"emit": "final"}, SLOW),
    "sessions on time, held back": behind_join(SESSIONS | {"emit": "on_time"}, SLOW),
    "counts of what was held back": behind_join(SLOW, COUNTS | {"emit": "final"}),
    "final counts, joined": before_join(COUNTS | {"emit": "final"}),
    "updates until the window closes, joined": before_join(
        COUNTS | {"emit": "updates"}, {**SLOW, "until": "window_close"}
    ),
    "held back, joined": before_join(SLOW),
}


@pytest.mark.parametrize("name", BEHIND_JOIN)
@many
@given(rows=joinable(6), cuts=strategies.cuts, gates=gates)
def test_a_chain_behind_a_join_gives_the_same_results_however_it_waited_for_its_table(
    name: str, rows: list[Row], cuts: set[int], gates: list[int]
) -> None:
    config = BEHIND_JOIN[name]
    assume_in_time(config, rows)
    assert joined(config, rows, cuts, gates) == joined(config, rows, set(), [])


@many
@given(data=st.data())
def test_any_chain_behind_a_join_gives_the_same_results_however_it_waited_for_its_table(data: st.DataObject) -> None:
    config = data.draw(joined_pipeline_configs())
    rows = data.draw(joinable(min(read.grace for read in config.reads())))
    assume_in_time(config, rows)
    assert joined(config, rows, data.draw(strategies.cuts), *data.draw(both_gates)) == joined(config, rows, set())


def assume_in_time(config: PipelineConfig, rows: list[Row]) -> None:
    """Draw again if a row comes to a join later than its grace: steps before the join may hold rows for so long."""
    late = lateness(config, rows)
    assume(all(late[read.step] <= read.grace for read in config.reads()))


def lateness(config: PipelineConfig, rows: list[Row]) -> dict[str | None, int]:
    """How late the rows are at most that reach each join, ms."""
    played = Played(pipeline_of(config))
    played.state.read_table(RAIN)
    results = [played.attempt(rows), played.attempt(Advance(HOUR))]
    return {
        read.step: max(result.measures.get(f"{read.step}.lateness_max", 0) for result in results)
        for read in config.reads()
    }


def test_what_a_suppression_behind_a_join_emits_in_between_is_emitted_too_if_the_join_waited() -> None:
    #   in          a4   b14      a9      a30                       grace 6, then a time limit of 4
    #   joined           a4 [8]           a9 b14 [24]               [8] makes a4 due before a9 would replace it
    #   if it waits                                 a4 [9] a9 b14 [24]
    rows = [Row(key, b"v", time, at) for at, (key, time) in enumerate([(b"a", 4), (b"b", 14), (b"a", 9), (b"a", 30)])]
    at_once, waited = (joined(BEHIND_JOIN["held back"], rows, {2}, waits) for waits in ([], [0, 0]))
    assert at_once == waited
    assert [row["timestamp"] for row in waited[0]["emissions"]] == [4, 9, 14, 30]


def test_a_dropped_row_without_a_key_moves_no_time() -> None:
    #   in       a4   -30   b5         grace 6: the row without a key leaves at once, and the filter drops it
    counts = COUNTS | {"emit": "final"}
    played = Played(pipeline_of(behind_join({"filter": "key <> 'c'::BLOB"}, counts)))
    played.state.read_table(RAIN)
    played.play([Row(b"a", b"v", 4, 0), Row(None, b"v", 30, 1), Row(b"b", b"v", 5, 2)])
    assert played.state.times()["s1"].stream_time <= 4
    played.play([Row(b"a", b"v", 40, 3)])
    assert played.seen["late"] == []


def test_a_late_record_does_not_make_those_late_that_wait_for_the_table() -> None:
    #   in       a4   b40   a20        grace 6; the table is complete up to 0: a4 waits, and a20 behind it
    played = Played(pipeline_of(behind_join(COUNTS | {"emit": "final"})))
    played.state.read_table(RAIN, 0)
    played.play([Row(b"a", b"v", 4, 0), Row(b"b", b"v", 40, 1), Row(b"a", b"v", 20, 2)])
    assert played.state.times()["s0"].received == 0
    played.state.read_table(RAIN)
    played.play([])
    assert played.seen["late"] == []
    assert [row["timestamp"] for row in played.seen["emissions"]] == [4, 20]
