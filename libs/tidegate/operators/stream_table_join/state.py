"""One partition's stream-table join over the arrays of a Storage.

The module wraps the kernels of `step`: it maps the arrays, grows them when a kernel needs room, and turns the kernel's
outcome into Arrow tables. The table is the state of a different operator, and is only read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import ALWAYS, NEVER, advanced
from tidegate.contracts.flow import Passage, later
from tidegate.contracts.operator import Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Int64s, Records
from tidegate.kernels import columns, hash_index, time_buffer
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records
from tidegate.kernels.touched import net_buffer_changes
from tidegate.kernels.version_chains import READABLE_FROM, VersionedState
from tidegate.operators import late_and_rejected, result_tables
from tidegate.operators.keys import PlainKeys, WindowKeys
from tidegate.operators.late_and_rejected import Timestamped
from tidegate.operators.shell import BUFFER_ARRAYS, Header, Shell, blocks_of, buffer_of, deletions, run, settle
from tidegate.operators.stream_table_join import measures, tables
from tidegate.operators.stream_table_join import step as kernel
from tidegate.operators.stream_table_join.config import StreamTableJoinRules
from tidegate.operators.stream_table_join.integrity import find_damage
from tidegate.operators.stream_table_join.joiner import Joiner

STREAM_TIME, OPENED = range(2)

_LONGS, _INTS = ("offset", "timestamp", "arrived", "checksum"), ("row", "size", "block", "key_length")
_MORE_INTS = ("value_length", "headers_length")

_SLOT = np.dtype([*((name, "i8") for name in _LONGS), *((name, "i4") for name in (*_INTS, *_MORE_INTS))])
"""The fields of a slot, which lie side by side in memory."""

LAYOUT = Layout(
    kind="stream_table_join",
    version=2,
    arrays=(
        ArraySpec("numbers", "int64", "fixed", kernel.NUMBERS),
        *BUFFER_ARRAYS,
        ArraySpec("record", "int64", "slots", _SLOT.itemsize // 8),
        ArraySpec("arena", "uint8", "arena"),
    ),
    capacity={"fixed": 1, "slots": 1024, "arena": 65536},
)

_NO_RECORDS = Records.from_rows([])


def rules_of(config: StreamTableJoinRules) -> kernel.Rules:
    """Return the configuration as numbers for the kernels."""
    return kernel.Rules(
        grace=config.grace or 0,
        wait=kernel.NO_LIMIT if config.wait_for_table is None else config.wait_for_table,
        inner=config.join == "inner",
        keyed=config.join == "inner" or config.windowed,
    )


def state_of(arrays: Mapping[str, Array]) -> kernel.State:
    """Return the storage's arrays as the kernels take them."""
    record = arrays["record"].view(_SLOT)
    stored = (record[name] for name in ("block", "key_length", *_MORE_INTS, "timestamp", "offset", "checksum"))
    return kernel.State(
        buffer_of(arrays, record["offset"], record["size"]),
        slots.SlotPool(arrays["pool_numbers"], record["offset"]),
        Payloads(blocks_of(arrays), *stored),
        record["row"],
        record["arrived"],
        arrays["numbers"],
    )


def damage_of(arrays: Mapping[str, Array]) -> str | None:
    """Return what is damaged in the arrays of a state, or None. To be called between two batches."""
    return "its numbers are impossible" if arrays["numbers"][OPENED] != 1 else find_damage(state_of(arrays))


class StreamTableJoinState:
    """The state of one partition of the stream-table join, an OperatorState."""

    def __init__(self, config: StreamTableJoinRules, joiner: Joiner | None, storage: Storage) -> None:
        self._config = config
        self._keys = WindowKeys(config.windows) if config.windowed else PlainKeys()
        self._rules = rules_of(config)
        self._joiner = joiner
        self._shell = Shell(storage, Header(STREAM_TIME, OPENED), state_of)
        self._table: VersionedState | None = None
        self._open_until = ALWAYS
        self._by_offset: Index | None = None
        self._shell.initialize()

    @property
    def stream_time(self) -> int:
        """Return the partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def read_table(self, table: VersionedState, open_until: int = ALWAYS, name: str | None = None) -> None:
        """Look up in this table from now on; call it before anything is joined, and whenever the table's state changes.

        Records held for a grace are joined only up to the event time `open_until`, because for later times the table
        is not complete yet. A record whose `wait_for_table` is over is joined all the same.
        """
        self._table, self._open_until = table, open_until

    def needs(self) -> dict[str, int]:
        """Return for the table the earliest event time for which a version may still be looked up.

        It is that of the oldest record held, or T - grace; earlier ones are of late records.
        """
        return {self._config.table: min(self.stream_time - self._rules.grace, self.oldest())}

    def oldest(self) -> int:
        """Return the timestamp of the oldest record that is held; MAX_TIMESTAMP if none is."""
        return int(kernel.oldest(self._shell.state.time))

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Join what is due, then process the records of the batch: join or buffer each, and count it once.

        The result's changelog describes all changes of the state. Raise UserError, in the middle of the batch, if the
        stream is before the history of its table and `before_history` is `stop`.
        """
        own, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        batch, _, missing = self._keys.keyed(own, missing, records.window)
        dated = Timestamped(batch, missing, newest)
        outcome = self._outcome(len(records))
        limits = self._limits(clock_ms)
        run(lambda: kernel.absorb(self._shell.state, dated, limits, self._rules, outcome), self._make_room)
        return self._result(dated, outcome, own)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`, and join what becomes due, except what waits for the table."""
        outcome = self._outcome(0)
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        due = int(outcome.tally[kernel.STREAM_TIME]) - self._rules.grace
        kernel.release(self._shell.state, due, self._limits(0), self._rules.wait, outcome)
        return self._without_records(outcome)

    def flush(self) -> StepResult:
        """Join everything that is held, without waiting for the table."""
        outcome = self._outcome(0)
        kernel.release(self._shell.state, kernel.MAX, kernel.Limits(0, ALWAYS, NEVER), self._rules.wait, outcome)
        return self._without_records(outcome)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, of which the latest of a slot comes last, and set stream time to `stream_time`.

        Rows that undo a batch are applied as one: what the first of them hold is not in the slots that the next ones
        name, because the batch gave those away.
        """
        in_parts = tables.SLOT.name not in rows.schema.names
        self._shell.restore(rows if in_parts else rows.combine_chunks(), stream_time, self._replay)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds an equal state, in the order of the buffer."""
        held = time_buffer.held_in_order(self._shell.state.time)
        return self._keys.with_record_keys(tables.changes(self._shell.state, flat_records(_NO_RECORDS), held))

    def _limits(self, clock_ms: int) -> kernel.Limits:
        open_until = self._open_until if self._rules.grace else ALWAYS
        return kernel.Limits(
            clock_ms, open_until, self._complete_from() if self._config.before_history == "stop" else NEVER
        )

    def _complete_from(self) -> int:
        """Return the first time from which on the table knows all versions."""
        return NEVER if self._table is None else int(self._table.versions.numbers[READABLE_FROM])

    def _outcome(self, records: int) -> kernel.Outcome:
        """Return an outcome with room for all effects of so many records; pages that stay unwritten take no memory."""
        numbers = self._shell.state.time.numbers
        held = int(numbers[time_buffer.HELD])
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[kernel.STREAM_TIME] = self.stream_time
        tally[kernel.HELD_MAX : kernel.HELD_BYTES_MAX + 1] = numbers
        return kernel.Outcome(
            emitted=np.empty(held + records, np.int64),
            late=np.empty(held + records, np.bool_),
            emitted_after=np.empty(held + records, np.int64),
            oldest=np.empty(records, np.int64),
            touched=np.empty(held + records, np.int32),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def _make_room(self, signal: int) -> None:
        """Add slots. Raise UserError if the kernel stopped because the stream is before the table's history."""
        if signal == kernel.BEFORE_HISTORY:
            self._raise_before_history()
        self._shell.add_slots("slots")

    def _raise_before_history(self) -> None:
        raise UserError(
            "the stream begins before the history of its table: the versions that its records need may be gone",
            value=f"the table is complete from event time {self._complete_from()} ms on",
            remedy="raise the table's history_retention and let it read its topic again, give the join a table of its "
            "own, which then keeps what this join needs, or write before_history: join to join what is still known",
        )

    def _replay(self, rows: pa.RecordBatch) -> None:
        batch = self._keys.from_changelog(flat_records(columns.records_of(rows)), rows)
        deleted = deletions(rows)
        arrived = columns.int_column(rows.column(tables.ARRIVED.name))
        outcome, index = self._outcome(len(rows)), self._offsets
        if tables.SLOT.name in rows.schema.names:
            alone, self._by_offset = self._offsets_of(columns.int_column(rows.column(tables.SLOT.name))), None
            index = lambda: alone  # noqa: E731
        run(
            lambda: kernel.replay(self._shell.state, index(), batch, deleted, arrived, outcome),
            self._make_room,
        )
        self._settle(batch, outcome)

    def _offsets_of(self, slots: Array) -> Index:
        """Return an index of these slots only, where held: rows that undo a batch name all slots that they change."""
        held = slots[self._shell.state.time.position[slots] != time_buffer.NOT_HELD]
        return self._indexed(held, 4 * len(slots) + 1)

    def _offsets(self) -> Index:
        """Return the index of the held slots by offset. `_replay` keeps it up to date; other changes discard it."""
        places = 2 * self._shell.capacity("slots")
        if self._by_offset is None or len(self._by_offset.places) < places:
            held = self._shell.state.time.heap[: self._shell.state.time.numbers[time_buffer.HELD]]
            self._by_offset = self._indexed(held, places)
        return self._by_offset

    def _indexed(self, slots: Array, places: int) -> Index:
        """Return an index of the slots by offset, with at least so many places."""
        index = Index(np.zeros(1 << (places - 1).bit_length(), np.int32), hash_index.KNOWN_SEED)
        kernel.index_by_offset(self._shell.state, slots, index)
        return index

    def _result(self, dated: Timestamped, outcome: kernel.Outcome, own: FlatRecords) -> StepResult:
        """Return the outcome as tables, and settle the batch. `own`: the records under their own keys."""
        self._by_offset = None
        batch, state, before = dated.batch, self._shell.state, self.stream_time
        touched = outcome.touched[: outcome.tally[kernel.TOUCHED]]
        changed = touched[net_buffer_changes(state.time, state.payloads, touched)]
        emissions = self._emissions(batch, outcome)
        rejected = late_and_rejected.rejected(state.payloads, own, outcome.unaccepted, dated.newest)
        changes = tables.changes(state, batch, changed)
        undo = tables.undo(state, batch, changed, changes["key"])
        self._settle(batch, outcome)
        self._shell.stream_time = outcome.tally[kernel.STREAM_TIME]
        held, held_bytes = (int(number) for number in self._shell.state.time.numbers)
        due = self.stream_time - self._rules.grace
        return StepResult(
            emissions=emissions,
            late=result_tables.NONE_REFUSED,
            rejected=rejected,
            changes=self._keys.with_record_keys(changes),
            undo=self._keys.with_record_keys(undo),
            counts=measures.counts(outcome, emissions.num_rows, held, held_bytes),
            stream_time=self.stream_time,
            measures=measures.measures(
                outcome, emissions, kernel.waiting(self._shell.state.time, due), held, held_bytes
            ),
            needs=self.needs(),
            passage=self._passage(before, batch, outcome, emissions["timestamp"].to_numpy()),
        )

    def _passage(self, before: int, batch: FlatRecords, outcome: kernel.Outcome, emitted: Int64s) -> Passage:
        """Return how the batch moved stream time. Records without a key do not, nor do those that are rejected.

        `emitted`: the timestamps of the results. With a grace each leaves behind a mark of its own time, because later
        ones may have the same time, and whether these leave together depends on when the table was read.
        """
        rows, times = int(outcome.tally[kernel.NEXT_ROW]), (before, self.stream_time)
        left = outcome.emitted_after[: len(emitted)]
        found = late_and_rejected.passage(times, batch, rows, outcome.unaccepted, left)
        keyless = np.flatnonzero(batch.key_length[:rows] < 0)
        oldest = outcome.oldest[:rows] if rows else np.array([kernel.oldest(self._shell.state.time)])
        reached = later(emitted, self._rules.grace) if self._rules.grace else None
        return found._replace(ignored=np.append(found.ignored, keyless), oldest=oldest, reached=reached)

    def _without_records(self, outcome: kernel.Outcome) -> StepResult:
        dated = late_and_rejected.with_timestamps(_NO_RECORDS, self._config, 0)
        return self._result(dated, outcome, dated.batch)

    def _emissions(self, batch: FlatRecords, outcome: kernel.Outcome) -> pa.Table:
        if outcome.tally[kernel.EMITTED] == 0:
            return self._keys.with_record_keys(tables.NO_EMISSIONS)
        if self._table is None:
            raise AssertionError("records were joined before a table was read")
        # rule: windows-looked-up-plain/lookup
        table = tables.Table(self._table.versions, in_window=self._config.windowed and not self._table.windowed)
        return tables.emissions(self._shell.state, batch, outcome, table, self._keys, self._rules.inner, self._joiner)

    def _settle(self, batch: FlatRecords, outcome: kernel.Outcome) -> None:
        """Store the payloads of held records, and drop those of the others. Build the batch's tables before."""
        settle(self._shell, kernel.settle, batch, outcome, outcome.tally[kernel.SETTLED :])
