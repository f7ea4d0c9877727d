"""A join with a table whose rows are in the pipeline's own input, beside those of the stream."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.test_rules import problems
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import STREAM_PORT, TABLE_PORT, Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineRules
from tidegate.runtime.configuration.application import rules_of, settings_of

pytestmark = pytest.mark.fast

GRACE, END = 10, 10_000
TABLE = {"name": "weather", "kind": "table_history", "history_retention": f"{2 * GRACE}ms"}
JOIN = {"name": "joined", "kind": "stream_table_join", "table": "weather", "join": "left", "grace": f"{GRACE}ms"}


class Arrival(NamedTuple):
    """A row of one of both inputs."""

    port: int
    key: bytes
    value: bytes | None
    time: int


def rules(*steps: dict[str, Any], **table: Any) -> PipelineRules:
    return read(PipelineRules, {"table": {**TABLE, **table}, "steps": list(steps)})


class Partition:
    """A partition of a pipeline, whose rows get offsets as in a streaming DataFrame: the table's come first."""

    def __init__(self, chosen: PipelineRules) -> None:
        self.operator = pipeline_of(chosen)
        self.state = self.operator.open(MemoryStorage(self.operator.layout))
        self.offset, self.floor, self.results = 0, None, list[StepResult]()

    def batch(self, *arrivals: Arrival, clock: int = 0) -> StepResult:
        ordered = sorted(arrivals, key=lambda each: -each.port)
        rows = [Row(each.key, each.value, each.time, self.offset + at) for at, each in enumerate(ordered)]
        records = replace(Records.from_rows(rows), port=np.array([each.port for each in ordered], np.int8))
        if self.floor is not None:
            self.state.hold(self.floor, ALWAYS)
        result = self.state.step(records, clock)
        assert result.counts.balanced and result.counts.records_in == len(arrivals)
        self.offset, self.floor = self.offset + len(rows), result.floor
        self.results.append(result)
        return result

    def restart(self) -> None:
        """Go on with a state that is rebuilt from the log."""
        self.state = self.operator.open(MemoryStorage(self.operator.layout))
        for result in self.results:
            self.state.restore(result.changes, result.stream_time)

    def joined(self) -> list[tuple[bytes, int, Any, str]]:
        """The results: key, time, the table's value, and the cause."""
        rows = [row for result in self.results for row in result.emissions.to_pylist()]
        return [(row["key"], row["timestamp"], json.loads(row["value"])["table"], row["cause"]) for row in rows]


def stream(key: bytes, time: int) -> Arrival:
    return Arrival(STREAM_PORT, key, b"1", time)


def table(key: bytes, value: bytes | None, time: int) -> Arrival:
    return Arrival(TABLE_PORT, key, value, time)


def as_of(arrivals: list[Arrival]) -> list[tuple[bytes, int, Any, str]]:
    """The join of all rows at once: each row of the stream with the newest version at its time."""
    versions = [each for each in arrivals if each.port == TABLE_PORT]
    found = []
    for each in (each for each in arrivals if each.port == STREAM_PORT):
        valid = [other for other in versions if other.key == each.key and other.time <= each.time]
        value = max(valid, key=lambda other: other.time).value if valid else None
        met = (None, "unmatched") if value is None else (json.loads(value), "matched")
        found.append((each.key, each.time, *met))
    return sorted(found, key=str)


def arrivals_of(chance: random.Random) -> tuple[list[Arrival], list[Arrival]]:
    """A stream and a table, each in an order of arrival in which no row is as late as the grace."""
    times = range(1, 200)
    versions = {(chance.choice(b"abc"), chance.choice(times)) for _ in range(chance.randint(0, 60))}
    of_table = [
        table(bytes([key]), None if chance.random() < 0.2 else b"%d" % at, time)
        for at, (key, time) in enumerate(sorted(versions))
    ]
    of_stream = [stream(bytes([chance.choice(b"abcd")]), chance.choice(times)) for _ in range(chance.randint(1, 60))]
    shuffled = (sorted(side, key=lambda row: row.time + chance.randrange(GRACE)) for side in (of_stream, of_table))
    first, second = shuffled
    return first, second


def cut(chance: random.Random, *sides: list[Arrival]) -> Iterator[list[Arrival]]:
    """Cut both sides into batches. Either may be far ahead of the other."""
    left = [list(side) for side in sides]
    while any(left):
        batch = []
        for side in left:
            count = chance.choice((0, 0, 1, 3, 40))
            batch += side[:count]
            del side[:count]
        yield batch


@given(seed=st.integers(0, 2**32))
def test_for_every_order_of_arrival_within_the_grace_the_join_is_that_of_all_rows_at_once(seed: int) -> None:
    chance = random.Random(seed)
    of_stream, of_table = arrivals_of(chance)
    partition = Partition(rules(JOIN))
    for batch in cut(chance, of_stream, of_table):
        if chance.random() < 0.2:
            partition.restart()
        partition.batch(*batch)
    partition.batch(stream(b"end", END), table(b"end", b"0", END))
    assert sorted(partition.joined(), key=str) == as_of([*of_stream, *of_table])
    assert [time for _, time, *_ in partition.joined()] == sorted(time for _, time, *_ in partition.joined())


def test_a_record_waits_for_the_table_and_leaves_in_a_batch_that_has_rows_of_the_table_alone() -> None:
    #   stream   a5   e30                    T_S 30: a5 is due
    #   table              a3  b14  c15      T_W 15 = 5 + the grace
    partition = Partition(rules(JOIN))
    partition.batch(stream(b"a", 5), stream(b"e", 30))
    partition.batch(table(b"a", b"3", 3), table(b"b", b"0", 14))
    assert partition.joined() == []
    partition.batch(table(b"c", b"0", 15))
    assert partition.joined() == [(b"a", 5, 3, "matched")]


def test_the_wait_for_the_table_ends_by_the_clock_of_a_batch() -> None:
    partition = Partition(rules({**JOIN, "wait_for_table": "100ms"}))
    partition.batch(stream(b"a", 5), stream(b"e", 30), clock=1_000)
    partition.batch(stream(b"f", 30), clock=1_099)
    assert partition.joined() == []
    partition.batch(stream(b"g", 30), clock=1_100)
    assert partition.joined() == [(b"a", 5, None, "unmatched")]


def test_the_table_keeps_versions_while_the_stream_is_behind() -> None:
    partition = Partition(rules(JOIN))
    partition.batch(*(table(b"a", b"%d" % time, time) for time in range(0, 1_000, 100)))
    partition.restart()
    partition.batch(stream(b"a", 250), stream(b"e", 300))
    assert partition.joined() == [(b"a", 250, 200, "matched")]
    partition.batch(stream(b"e", 900), table(b"z", b"0", 1_000))
    kept = [row for row in partition.state.snapshot().to_pylist() if row["step"] == "weather" and row["key"] == b"a"]
    assert [row["timestamp"] for row in kept] == [200, 300, 400, 500, 600, 700, 800, 900]
    partition.batch(table(b"z", b"1", 1_001))
    assert partition.floor == 900 - GRACE


def test_versions_that_were_given_up_stay_unknown_after_a_restart() -> None:
    partition = Partition(rules({**JOIN, "before_history": "join"}, hold_for_readers="1B"))
    partition.batch(*(table(b"a", b"%d" % time, time) for time in range(0, 1_000, 100)))
    assert partition.floor == 900 - 2 * GRACE
    partition.restart()
    partition.batch(stream(b"a", 250), stream(b"e", 300))
    assert partition.joined() == [(b"a", 250, None, "expired")]


def test_late_and_rejected_rows_say_of_which_input_they_are() -> None:
    partition = Partition(rules(JOIN))
    partition.batch(table(b"a", b"1", 500))
    result = partition.batch(table(b"a", b"0", 3), Arrival(STREAM_PORT, b"a", None, 4), stream(b"a", 5))
    late, rejected = result.late.to_pylist(), result.rejected.to_pylist()
    assert [(row["step"], row["offset"], row["value"]) for row in late] == [("weather", 1, b"0")]
    assert [(row["step"], row["offset"], row["cause"]) for row in rejected] == [("joined", 2, "null value")]
    assert (result.counts.late, result.counts.rejected, result.counts.applied) == (1, 1, 1)


def test_steps_stand_before_and_behind_the_join() -> None:
    count = {"name": "n", "kind": "windowed_aggregation", "window": {"tumbling": "1s", "grace": "0"}}
    chosen = rules({"filter": "timestamp <> 7"}, JOIN, {**count, "aggregate": {"count": True}, "emit": "updates"})
    partition = Partition(chosen)
    partition.batch(table(b"a", b"1", 3), table(b"b", b"1", 90))
    partition.batch(stream(b"a", 5), stream(b"a", 7), stream(b"a", 8), stream(b"e", 90))
    [*counts] = partition.results[-1].emissions.to_pylist()
    assert [(row["key"], row["value"]) for row in counts] == [(b"a", b"1"), (b"a", b"2")]


@pytest.mark.parametrize(
    ("steps", "table", "where", "cause"),
    [
        ([{**JOIN, "grace": "20ms"}], {}, "steps.0", "is not greater than grace"),
        ([{**JOIN, "table": "wether"}], {}, "steps.0", "it joins another table than weather"),
        ([{**JOIN, "name": "weather"}], {}, "steps.0", "the table is named weather, too"),
        ([{"name": "once", "kind": "deduplicate", "within": "forever"}], {}, "steps.0", "no step joins the table"),
        ([JOIN], {"kind": "suppression"}, "table", "not a table"),
        ([JOIN], {"history_retention": "soon"}, "table.history_retention", "is not a duration"),
    ],
)
def test_what_does_not_fit_is_a_problem_of_the_step_or_the_table(
    steps: list[Any], table: Any, where: str, cause: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        rules(*steps, **table)
    assert [(each.where, cause in each.cause) for each in error.value.problems][:1] == [(where, True)]


def test_the_settings_of_a_log_describe_the_table() -> None:
    chosen = rules(JOIN)
    assert rules_of(settings_of(chosen)) == chosen


def test_a_topic_has_no_rows_of_a_table() -> None:
    assert "the input has the records of a stream alone" in problems(JOIN, table=TABLE).values()
