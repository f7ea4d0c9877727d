"""The laws of a change of the number of partitions: nothing is lost or changed, and the output goes on as it should.

The law of the output is about time. A partition has one stream time, and a new partition continues with the latest one
of its sources. So the change equals a fresh run with the new number of partitions in which, after each record, the
stream time of all partitions with keys of its former partition has advanced to that of the former partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.operators.keys import bytes_of_window
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.cases import Case, cases
from tidegate.operators.testing.laws import Table
from tidegate.state.upkeep.rescaling import sources_of, stream_time_of_all
from tidegate.state.upkeep.state_moves import Held, aligned, checksum, counted, moved

pytestmark = pytest.mark.fast

CLOCK_MS = 12
PARTITIONS = st.integers(1, 6)


RESCALED = [kind for kind, case in cases().items() if isinstance(operator_for(case.holding).slot, tuple)]
"""All kinds but those of several steps, which `tidegate rescale` refuses."""


@pytest.fixture(scope="module", params=RESCALED)
def case(request: pytest.FixtureRequest) -> Case:
    """What the laws need to know of the operator."""
    return cases()[request.param]


class Run:
    """The partitions of one operator, whose records are placed by Kafka's partitioner."""

    def __init__(self, config: Any, partitions: int) -> None:
        self.operator, self.partitions = operator_for(config), partitions
        self.states: list[Any] = [self.operator.open(MemoryStorage(self.operator.layout)) for _ in range(partitions)]
        self.suffix = bytes_of_window(config)

    def place(self, row: Row) -> int:
        """The partition of the record: by its key without the part that names a window."""
        key = row.key or b""
        base = key[: max(len(key) - self.suffix, 0)] if self.suffix else key
        return int(partitions_of(pa.chunked_array([pa.array([base], pa.binary())]), self.partitions)[0])

    def step(self, row: Row) -> list[dict[str, Any]]:
        result = self.states[self.place(row)].step(Records.from_rows([row]), CLOCK_MS)
        assume(result.stopped_at is None)
        emissions: list[dict[str, Any]] = result.emissions.to_pylist()
        return emissions

    def advance(self, partitions: Sequence[int], stream_time: int) -> list[dict[str, Any]]:
        emissions: list[dict[str, Any]] = []
        for partition in partitions:
            if self.states[partition].stream_time < stream_time:
                emissions += self.states[partition].advance(stream_time).emissions.to_pylist()
        return emissions

    def read(self, table: Table) -> None:
        for state in self.states:
            state.read_table(table.state(CLOCK_MS))

    def held(self) -> list[Held]:
        return [Held(rows=state.snapshot(), stream_time=state.stream_time) for state in self.states]

    def rescaled(self, partitions: int, *, align: bool) -> list[Held]:
        """What each of so many partitions takes over."""
        found, before = [], self.held()
        for partition in range(partitions):
            sources = [before[p] for p in sources_of(partition, self.partitions, partitions)]
            latest = stream_time_of_all(each.stream_time for each in sources)
            level = [
                aligned(self.operator, each, latest) if align else Held(rows=each.rows, stream_time=latest)
                for each in sources
            ]
            found.append(moved(self.operator, level, partition, partitions))
        return found

    def continue_with(self, held: Sequence[Held]) -> None:
        for state, each in zip(self.states, held, strict=True):
            state.restore(each.rows, each.stream_time)


def stands_alone(config: Any) -> bool:
    return config.kind not in ("stream_table_join", "table_history")


def run_of(config: Any, partitions: int, history: Sequence[Any]) -> Run:
    run = Run(config, partitions)
    for event in history:
        if isinstance(event, Table):
            run.read(event)
        else:
            run.step(event)
    return run


def example(data: st.DataObject, case: Case) -> tuple[Any, list[Any]]:
    """A configuration without bounds, which hold per partition, and records, after a table if it reads one."""
    config = data.draw(case.configs)
    assume(
        getattr(config, "buffer", None) is None or (config.buffer.max_keys is None and config.buffer.max_bytes is None)
    )
    drawn = data.draw(case.histories)
    history = [event for event in drawn if isinstance(event, Row) and not event.time_only]
    tables = [event for event in drawn if isinstance(event, Table)]
    if config.kind == "stream_table_join":
        assume(tables and config.before_history != "stop")
        return config, [tables[0], *history]
    return config, history


def rows_of(held: Held) -> list[dict[str, Any]]:
    return sorted(held.rows.to_pylist(), key=repr)


@many
@given(data=st.data(), before=PARTITIONS, after=PARTITIONS)
def test_all_that_is_held_is_held_by_the_partition_of_its_key(case, data, before, after) -> None:
    config, history = example(data, case)
    run = run_of(config, before, history)
    now = run.rescaled(after, align=False)
    was = run.held()
    assert sum(each.rows.num_rows for each in now) == sum(each.rows.num_rows for each in was)
    total = sum(checksum(run.operator, each.rows) for each in was) % 2**64
    assert sum(checksum(run.operator, each.rows) for each in now) % 2**64 == total
    for partition, each in enumerate(now):
        assert set(partitions_of(each.rows.column("key"), after)) <= {partition}


@many
@given(data=st.data(), before=PARTITIONS, factor=st.integers(1, 4))
def test_more_partitions_and_back_is_the_same_state(case, data, before, factor) -> None:
    config, history = example(data, case)
    run = run_of(config, before, history)
    grown = Run(config, before * factor)
    grown.continue_with(run.rescaled(before * factor, align=False))
    for was, now in zip(run.held(), grown.rescaled(before, align=False), strict=True):
        assert (rows_of(now), now.stream_time) == (rows_of(was), was.stream_time)


@many
@given(data=st.data(), before=PARTITIONS, after=PARTITIONS)
def test_an_operator_can_continue_with_the_moved_state_and_holds_as_much(case, data, before, after) -> None:
    config, history = example(data, case)
    run = run_of(config, before, history)
    for held in run.rescaled(after, align=stands_alone(config)):
        counted(run.operator, held)


@many
@given(data=st.data(), before=PARTITIONS, factor=st.integers(1, 4))
def test_the_output_equals_that_of_a_fresh_run_with_the_same_stream_times(case, data, before, factor) -> None:
    config, history = example(data, case)
    cut = data.draw(st.integers(0, len(history)))
    former, fresh = Run(config, before), Run(config, before * factor)
    for event in history[:cut]:
        if isinstance(event, Table):
            former.read(event)
            fresh.read(event)
            continue
        former.step(event)
        fresh.step(event)
        place = former.place(event)
        heirs = range(place, before * factor, before)
        fresh.advance(heirs, former.states[place].stream_time)
    now = Run(config, before * factor)
    now.continue_with(former.rescaled(before * factor, align=False))
    for table in [event for event in history[:cut] if isinstance(event, Table)]:
        now.read(table)
    for was, found in zip(fresh.held(), now.held(), strict=True):
        assert (rows_of(found), found.stream_time) == (rows_of(was), was.stream_time)
    for event in history[cut:]:
        if isinstance(event, Table):
            fresh.read(event)
            now.read(event)
        else:
            assert now.step(event) == fresh.step(event)
