"""The operator that takes records of the input where no other one does: a pipeline's results are what operators took.

It reads the event timestamps and the windows as every operator does, rejects what has none, keeps the stream time, and
passes each record on at once. It holds nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.event_time import advanced
from tidegate.contracts.operator import Array, ArraySpec, Layout, OffsetColumns, StepResult, Storage
from tidegate.contracts.records import Records
from tidegate.kernels.columns import record_columns
from tidegate.kernels.compiled import compiled_in_place
from tidegate.kernels.memory import arena
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.operators import late_and_rejected
from tidegate.operators.keys import keys_of
from tidegate.operators.late_and_rejected import ACCEPTED, NULL_KEY, TIME_ONLY, Unaccepted
from tidegate.operators.result_tables import EMISSIONS, NONE_REFUSED, changes_schema, dictionary_column
from tidegate.operators.shell import Header, Shell

STREAM_TIME, OPENED = range(2)
"""A state's `numbers`: stream time, and 1 if it is initialized."""

LAYOUT = Layout("pass_through", 1, (ArraySpec("numbers", "int64", "fixed", 2),), {"fixed": 1})

_CAUSES = pa.array(["passed"])
_NO_CHANGES = changes_schema().empty_table()
_NO_RECORDS = Records.from_rows([])
_NO_INTS, _NO_LONGS = np.empty(0, np.int32), np.empty(0, np.int64)
_NO_ARENA = Arena(np.empty(0, np.uint8), _NO_LONGS, np.zeros(arena.NUMBERS, np.int64))
_NOTHING_STORED = Payloads(_NO_ARENA, *(_NO_INTS,) * 4, *(_NO_LONGS,) * 3)


class Outcome(NamedTuple):
    """The effects of a batch: the rows that passed, the rejected ones, how many passed, and stream time."""

    passed: Array
    unaccepted: Unaccepted
    tally: Array


PASSED, T = range(2)


@compiled_in_place
def absorb(batch: FlatRecords, missing: Array, newest: int, outcome: Outcome) -> None:
    """Pass each record, or note why it is rejected.

    `missing`: a code per row, 0 where nothing is missing. `newest`: the largest timestamp that is accepted.
    """
    tally = outcome.tally
    for row in range(len(batch.offset)):
        timestamp = batch.timestamp[row]
        code = late_and_rejected.bad_timestamp(timestamp, missing[row], newest)
        if code == ACCEPTED:
            outcome.passed[tally[PASSED]] = row
            tally[PASSED] += 1
            tally[T] = max(tally[T], timestamp)
            late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[T])
            continue
        late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[T])
        if code == TIME_ONLY:
            tally[T] = max(tally[T], timestamp)


class PassThrough:
    """The Operator that passes records on. `rules`: those of the pipeline, which say how its input is read."""

    kind: str = LAYOUT.kind
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = ()
    slot: tuple[str, ...] = ("key",)
    offset_columns = OffsetColumns()

    def __init__(self, rules: KeyRules) -> None:
        self._rules = rules

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in the storage, or None."""
        return "its numbers are impossible" if storage.arrays()["numbers"][OPENED] != 1 else None

    def open(self, storage: Storage) -> PassThroughState:
        """Return the state in the storage."""
        return PassThroughState(self._rules, storage)


class PassThroughState:
    """The stream time of one partition, an OperatorState."""

    def __init__(self, rules: KeyRules, storage: Storage) -> None:
        self._rules = rules
        self._keys = keys_of(rules)
        self._shell = Shell(storage, Header(STREAM_TIME, OPENED), lambda arrays: arrays["numbers"])
        self._shell.initialize()

    @property
    def stream_time(self) -> int:
        """Return the partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Pass the records on; each is counted once. Those without a key pass, too, unless keys have windows."""
        own, missing, newest = late_and_rejected.with_timestamps(records, self._rules, clock_ms)
        batch, _, missing = self._keys.keyed(own, missing, records.window)
        if self._rules.windowed:
            missing = np.where((missing == 0) & (own.key_length < 0), NULL_KEY, missing).astype(np.int8)
        outcome = self._outcome(len(records))
        absorb(batch, missing, newest, outcome)
        return self._result(batch, own, newest, outcome)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`. Nothing is emitted."""
        self._shell.stream_time = advanced(self.stream_time, stream_time)
        return self.flush()

    def flush(self) -> StepResult:
        """Return an empty result: nothing is held."""
        return self.step(_NO_RECORDS, 0)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Set stream time to `stream_time`. There are no changelog rows."""
        self._shell.stream_time = stream_time

    def snapshot(self) -> pa.Table:
        """Return no rows."""
        return _NO_CHANGES

    def _outcome(self, records: int) -> Outcome:
        tally = np.array([0, self.stream_time], np.int64)
        return Outcome(np.empty(records, np.int64), late_and_rejected.none_yet(records), tally)

    def _result(self, batch: FlatRecords, own: FlatRecords, newest: int, outcome: Outcome) -> StepResult:
        """Return the outcome as tables. `own`: the records under their own keys."""
        count, before, unaccepted = len(batch.offset), self.stream_time, outcome.unaccepted
        passed = outcome.passed[: outcome.tally[PASSED]]
        self._shell.stream_time = int(outcome.tally[T])
        rejected = late_and_rejected.rejected(_NOTHING_STORED, own, unaccepted, newest)
        times = (before, self.stream_time)
        return StepResult(
            emissions=self._keys.with_record_keys(_emissions(batch, passed)),
            late=NONE_REFUSED,
            rejected=rejected,
            changes=_NO_CHANGES,
            undo=_NO_CHANGES,
            counts=Counts(
                records_in=late_and_rejected.records_in(unaccepted, count),
                applied=len(passed),
                rejected=rejected.num_rows,
                emitted=len(passed),
            ),
            stream_time=self.stream_time,
            measures=late_and_rejected.measures(unaccepted, count),
            passage=late_and_rejected.passage(times, batch, count, unaccepted, passed),
        )


def _emissions(batch: FlatRecords, rows: Array) -> pa.Table:
    """Return the records of these rows, in order."""
    causes = dictionary_column(np.zeros(len(rows), np.int8), _CAUSES)
    return pa.table(record_columns(_NOTHING_STORED, batch, rows) | {"cause": causes}, EMISSIONS)
