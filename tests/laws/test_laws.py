"""The laws that every operator must pass: one suite, over the registry."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.patience import PATIENCE_S
from tidegate.contracts.operator import Operator
from tidegate.contracts.records import Row
from tidegate.operators.registry import kinds, operator_for
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import Case, cases
from tidegate.operators.testing.laws import Advance, Change, Flush, Partition, Step, Table, Trace, batches, held_rows
from tidegate.testing.memory_log import LogUnderTest, MemoryLog

pytestmark = pytest.mark.fast

CLOCK_MS = 12
VALUE, OTHER = (b'{"n":1,"text":"%s"}' % (letter * 44) for letter in (b"v", b"w"))
"""Two values that every case accepts, of 61 bytes."""

MakeLog = Callable[[Operator], LogUnderTest]


@pytest.fixture(scope="module", params=cases())
def case(request: pytest.FixtureRequest) -> Case:
    """What the laws need to know of the operator."""
    return cases()[request.param]


@pytest.fixture(scope="module")
def make_log() -> MakeLog:
    """A new log under test; the slow suite puts a real one here."""
    return lambda operator: MemoryLog(operator.slot)


def example(data: st.DataObject, case: Case) -> tuple[Any, list[Any], set[int]]:
    """A configuration, a history, and where it is cut into batches; no join reads a table that it would refuse."""
    config = data.draw(case.configs)
    history = data.draw(strategies.with_marks(data.draw(case.histories)))
    history = data.draw(strategies.with_pins(strategies.readable(history, config), CLOCK_MS))
    return config, history, data.draw(strategies.cuts)


def undisturbed(config: Any, history: list[Any], cuts: set[int]) -> Trace:
    """What the history makes visible when nothing goes wrong."""
    return Partition(operator_for(config), CLOCK_MS).play_all(history, cuts)


def test_every_kind_of_operator_has_laws_to_pass() -> None:
    assert {case.holding.kind for case in cases().values()} == set(kinds())


@many
@given(data=st.data())
def test_law_1_an_operator_equals_its_reference(case: Case, data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    assert undisturbed(config, history, cuts) == case.reference(config, history, CLOCK_MS)


@many
@given(data=st.data())
def test_law_2_the_cut_into_batches_changes_nothing(case: Case, data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    other_cuts = data.draw(strategies.cuts)
    assert undisturbed(config, history, cuts) == undisturbed(config, history, other_cuts)


@many
@given(data=st.data())
def test_law_3_a_restart_at_any_batch_changes_nothing_that_follows(
    case: Case, make_log: MakeLog, data: st.DataObject
) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    log = make_log(partition.operator)
    checkpoints = []
    for step in batches(history, cuts):
        result = partition.play(step)
        log.commit(result)
        checkpoints.append(partition.storage.copy())
        if result.stopped_at is not None:
            break
        restart(partition, log, checkpoints, data)
    assert partition.finished() == undisturbed(config, history, cuts)


@many
@given(data=st.data())
def test_law_4_the_changelog_restores_the_same_state(case: Case, make_log: MakeLog, data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    log = make_log(partition.operator)
    for step in batches(history, cuts):
        log.commit(partition.play(step))
    assume(partition.trace.stopped_at is None and history)
    rows = log.rows()
    restored = Partition(partition.operator, CLOCK_MS)
    restored.trace.stream_time, restored.trace.floor = partition.trace.stream_time, partition.trace.floor
    restored.needs = partition.needs  # a driver tells a state what readers need before its first batch
    restored.read_tables(partition.tables)
    restored.catch_up(rows.take(np.argsort(rows["key"].to_pylist(), kind="stable")))
    assert restored.state.snapshot() == partition.state.snapshot()
    assert restored.state.stream_time == partition.state.stream_time
    for derived in ("held", "held_bytes"):
        assert getattr(restored.play([]).counts, derived) == getattr(partition.play([]).counts, derived)
    due = max(0, partition.state.stream_time) + data.draw(st.integers(0, 20))
    assert restored.state.advance(due).emissions == partition.state.advance(due).emissions
    assert restored.state.flush().emissions == partition.state.flush().emissions


@many
@given(data=st.data())
def test_law_5_compaction_at_any_point_changes_nothing_that_follows(
    case: Case, make_log: MakeLog, data: st.DataObject
) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    log = make_log(partition.operator)
    for step in batches(history, cuts):
        result = partition.play(step)
        log.commit(result)
        if data.draw(st.booleans()):
            log.compact()
        if result.stopped_at is not None:
            break
        partition.rebuild(log.rows())
    assert partition.finished() == undisturbed(config, history, cuts)


@many
@given(data=st.data())
def test_law_6_numba_on_and_off_agree(case: Case, without_numba: subprocess.Popen[bytes], data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    assert without_numba.stdin and without_numba.stdout
    pickle.dump((config, history, cuts, CLOCK_MS), without_numba.stdin)
    without_numba.stdin.flush()
    assert pickle.load(without_numba.stdout) == undisturbed(config, history, cuts).as_dict()


@many
@given(data=st.data())
def test_law_7_memory_is_bounded_by_what_is_held_and_received(case: Case, data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    empty = sum(array.nbytes for array in partition.storage.arrays().values())
    records = content = 0
    for step in batches(history, cuts):
        rows = step if isinstance(step, list) else []
        held = partition.state.snapshot().to_pylist()
        records = max(records, len(held) + len(rows))
        content = max(content, sum(map(size, held)) + sum(map(size, (row._asdict() for row in rows))))
        partition.play(step)
    taken = sum(array.nbytes for array in partition.storage.arrays().values())
    assert taken <= empty + 2 * case.bytes_per_record * records + 4 * content


def test_law_7_a_held_record_takes_little_beside_its_key_and_value(case: Case) -> None:
    partition = Partition(operator_for(case.holding), CLOCK_MS)
    held = 2**14
    rows = [Row(b"key-%07d" % n, VALUE, n, n) for n in range(held)]
    partition.play(rows)
    taken = sum(array.nbytes for array in partition.storage.arrays().values() if array.dtype != np.uint8)
    used = sum(np.count_nonzero(array) for array in partition.storage.arrays().values() if array.dtype == np.uint8)
    assert taken + used - sum(size(row._asdict()) for row in rows) <= case.bytes_per_record * held


def test_law_7_a_batch_writes_no_more_than_it_receives(case: Case) -> None:
    partition = Partition(operator_for(case.holding), CLOCK_MS, operator_for(case.holding).layout)
    partition.play([Row(b"key-%07d" % n, VALUE, 20_000 - n, n) for n in range(20_000)])
    before = partition.storage.copy().arrays()
    partition.play([Row(b"key-%07d" % (n * 1_999), OTHER, 0, 30_000 + n) for n in range(10)])
    assert written_since(before, partition) <= 10 * (80 + 100)


@settings(many, max_examples=max(5, many.max_examples // 3))
@given(data=st.data())
def test_law_7_a_batch_writes_no_more_because_more_is_held(case: Case, data: st.DataObject) -> None:
    config = data.draw(case.configs)
    history = strategies.readable(data.draw(case.histories), config)
    tables = [event for event in history if isinstance(event, Table)]
    few, ten_times_as_many = (written_by_a_batch(config, tables, held) for held in (400, 4_000))
    assert ten_times_as_many <= 2 * few + 500


def written_by_a_batch(config: Any, tables: list[Table], held: int) -> int:
    """How many items of its arrays an operator writes for ten records that move no time, after it got so many."""
    partition = Partition(operator_for(config), CLOCK_MS, operator_for(config).layout)
    for table in tables:
        partition.play(table)
    partition.play([Row(b"key-%07d" % n, VALUE, n % 4, n) for n in range(held)])
    before = partition.storage.copy().arrays()
    partition.play([Row(b"key-%07d" % (n * 7), OTHER, n % 4, held + n) for n in range(10)])
    return written_since(before, partition)


def written_since(before: Mapping[str, Any], partition: Partition) -> int:
    """How many items of the partition's arrays differ from those of before."""
    return sum(
        int(np.count_nonzero(array[: len(before[name])] != before[name]))
        for name, array in partition.storage.arrays().items()
    )


@many
@given(data=st.data())
def test_law_8_every_record_is_counted_once_and_late_and_rejected_records_are_rows(
    case: Case, data: st.DataObject
) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    for step in batches(history, cuts):
        rows = step if isinstance(step, list) else []
        result = partition.play(step)
        taken = rows if result.stopped_at is None else [row for row in rows if row.offset < result.stopped_at]
        assert result.counts.records_in == sum(not row.time_only for row in taken)
        assert result.counts.balanced
        rejected = records_in(result.rejected)
        late = [offset for offset in records_in(result.late) if offset not in rejected]
        assert result.emissions.num_rows == result.counts.emitted
        assert (len(late), len(rejected)) == (result.counts.late, result.counts.rejected)
        assert result.counts.held == held_rows(partition.state.snapshot()).num_rows
        if result.stopped_at is not None:
            break


@many
@given(data=st.data())
def test_law_9_a_step_and_its_undo_change_nothing_that_follows(case: Case, data: st.DataObject) -> None:
    config, history, cuts = example(data, case)
    steps, partition = batches(history, cuts), Partition(operator_for(config), CLOCK_MS)
    for number, step in enumerate(steps):
        if not isinstance(step, Change):
            for failed in data.draw(attempts(steps[number:])):
                fail_and_undo(partition, failed, restarts=data.draw(st.booleans()))
        if partition.play(step).stopped_at is not None:
            break
    assert partition.finished() == undisturbed(config, history, cuts)


def records_in(refused: Any) -> list[int]:
    """The offsets of the refused records of the input.

    A step within a pipeline refuses rows of the step before it; several branches may have refused the same record.
    """
    if "topic" not in refused.column_names:
        return refused["offset"].to_pylist()  # type: ignore[no-any-return]
    return list(dict.fromkeys(refused.filter(refused["topic"].is_null())["offset"].to_pylist()))


def attempts(steps: list[Step]) -> st.SearchStrategy[list[Step]]:
    """What may be tried in the place of the first of the steps: it, the records behind it too, an advance, a flush."""
    step = steps[0]
    behind = takewhile(lambda later: isinstance(later, list), steps)
    whole = [row for rows in behind for row in cast(list[Row], rows)]
    tried: list[Step] = [Advance(1), Advance(15), Flush(), *([step, whole] if isinstance(step, list) else [])]
    return st.lists(st.sampled_from(tried), max_size=2)


def fail_and_undo(partition: Partition, step: Step, *, restarts: bool) -> None:
    """The step is taken and undone, perhaps by another process: the state is what it was, and sound."""
    before, stream_time = partition.state.snapshot(), partition.state.stream_time
    undo = partition.attempt(step).undo
    if restarts:
        partition.reopen(partition.storage)
    partition.state.restore(undo, stream_time)
    assert partition.state.snapshot() == before
    assert partition.state.stream_time == stream_time
    assert partition.operator.damage(partition.storage) is None


def test_law_9_to_undo_a_batch_writes_no_more_than_it_received(case: Case) -> None:
    partition = Partition(operator_for(case.holding), CLOCK_MS, operator_for(case.holding).layout)
    partition.play([Row(b"key-%07d" % n, VALUE, 20_000 - n, n) for n in range(20_000)])
    undo = partition.attempt([Row(b"key-%07d" % (n * 1_999), OTHER, 0, 30_000 + n) for n in range(10)]).undo
    assert 0 < undo.num_rows <= 10 * 3  # of a window, of what came, and of what it was merged with
    before = partition.storage.copy().arrays()
    partition.state.restore(undo, partition.trace.stream_time)
    assert written_since(before, partition) <= 10 * (80 + 100)


def restart(partition: Partition, log: LogUnderTest, checkpoints: list[Any], data: st.DataObject) -> None:
    """The partition goes on as after some restart: of its checkpoint, of the log, of an old checkpoint and the log."""
    way = data.draw(st.sampled_from(["none", "checkpoint", "log", "catch up"]))
    if way == "checkpoint":
        partition.reopen(checkpoints[-1])
    elif way == "log":
        partition.rebuild(log.rows())
    elif way == "catch up":
        batch = data.draw(st.integers(0, len(checkpoints) - 1))
        partition.reopen(checkpoints[batch])
        if (rows := log.tail(batch)) is not None:
            partition.catch_up(rows)


def size(row: dict[str, Any]) -> int:
    """The bytes of a row's key, value and headers."""
    return sum(len(row[part] or b"") for part in ("key", "value", "headers"))


@pytest.fixture(scope="module")
def without_numba() -> Iterator[subprocess.Popen[bytes]]:
    """A process that plays histories with numba switched off."""
    worker = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.laws.plain_worker"],
        env=os.environ | {"TIDEGATE_NUMBA": "off", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    yield worker
    assert worker.stdin
    worker.stdin.close()
    assert worker.wait(PATIENCE_S) == 0
