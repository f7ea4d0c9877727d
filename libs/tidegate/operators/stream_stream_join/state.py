"""One partition's stream-stream join over the arrays of a Storage.

The module wraps the kernels of `step`: it maps the arrays, grows them when a kernel needs room, and turns the kernel's
outcome into Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIMESTAMP, advanced
from tidegate.contracts.flow import Passage
from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Records
from tidegate.kernels import columns, time_buffer
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records, frozen
from tidegate.kernels.touched import net_buffer_changes
from tidegate.operators import late_and_rejected
from tidegate.operators.keys import keys_of
from tidegate.operators.late_and_rejected import Timestamped
from tidegate.operators.shell import BUFFER_ARRAYS, Header, Shell, blocks_of, buffer_of, deletions, run, settle
from tidegate.operators.stream_stream_join import measures, tables
from tidegate.operators.stream_stream_join import step as kernel
from tidegate.operators.stream_stream_join.config import StreamStreamJoinRules
from tidegate.operators.stream_stream_join.integrity import find_damage

_LONGS = ("fingerprint", "arrival", "timestamp", "offset", "checksum")
_INTS = ("row", "size", "block", "key_length", "value_length", "headers_length", "older", "newer", "waits", "unused")

_SLOT = np.dtype([*((name, "i8") for name in _LONGS), *((name, "i4") for name in _INTS)])
"""The fields of a slot, which lie side by side in memory."""

LAYOUT = Layout(
    kind="stream_stream_join",
    version=1,
    arrays=(
        ArraySpec("numbers", "int64", "fixed", kernel.NUMBERS),
        *BUFFER_ARRAYS,
        ArraySpec("record", "int64", "slots", _SLOT.itemsize // 8),
        ArraySpec("index", "int32", "index"),
        SEED,
        ArraySpec("arena", "uint8", "arena"),
    ),
    capacity={"fixed": 1, "slots": 1024, "index": 2048, "arena": 65536},
)

_NO_RECORDS = Records.from_rows([])


def rules_of(config: StreamStreamJoinRules) -> kernel.Rules:
    """Return the configuration as numbers for the kernels."""
    return kernel.Rules(
        ahead=(config.after, config.before),
        back=(config.before, config.after),
        open_for=(config.open_for(0), config.open_for(1)),
        pads=(config.pads(0), config.pads(1)),
        held_for=config.held_for,
        keyed=config.windowed,
    )


def state_of(arrays: Mapping[str, Array]) -> kernel.State:
    """Return the storage's arrays as the kernels take them."""
    record = arrays["record"].view(_SLOT)
    return kernel.State(
        time=buffer_of(arrays, record["arrival"], record["size"]),
        pool=slots.SlotPool(arrays["pool_numbers"], record["arrival"]),
        payloads=Payloads(blocks_of(arrays), *(record[name] for name in Payloads._fields[1:])),
        key_index=Index(arrays["index"], arrays["seed"]),
        fingerprint=record["fingerprint"],
        older=record["older"],
        newer=record["newer"],
        waits=record["waits"],
        row=record["row"],
        numbers=arrays["numbers"],
    )


def damage_of(arrays: Mapping[str, Array], config: StreamStreamJoinRules) -> str | None:
    """Return what is damaged in the arrays of a state, or None. To be called between two batches."""
    opened, windowed = arrays["numbers"][[kernel.OPENED, kernel.WINDOWED]]
    if opened != 1 or windowed != config.windowed:
        return "its numbers are impossible"
    return find_damage(state_of(arrays), rules_of(config))


class StreamStreamJoinState:
    """The records of both streams that one partition holds, an OperatorState."""

    def __init__(self, config: StreamStreamJoinRules, storage: Storage) -> None:
        self._config, self._rules, self._keys = config, rules_of(config), keys_of(config)
        self._shell = Shell(storage, Header(kernel.T, kernel.OPENED), state_of)
        self._shell.initialize_keyed(kernel.WINDOWED, config.windowed)

    @property
    def stream_time(self) -> int:
        """Return the stream time (T) over both streams; NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process the records of both streams in their order: join each with its partners, hold it, and count it once.

        The `port` of a record is 0 on the left and 1 on the right.
        """
        own, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        batch, _, missing = self._keys.keyed(own, missing, records.window)
        dated, port = Timestamped(batch, missing, newest), _port_of(records)
        outcome = self._outcome(len(records))

        def make_room(signal: int) -> None:
            nonlocal outcome
            if signal == kernel.NEEDS_SLOT:
                self._shell.add_indexed_slots("slots", kernel.reindex)
            else:
                outcome = _with_more_results(outcome)

        run(lambda: kernel.absorb(self._shell.state, dated, port, self._rules, outcome), make_room)
        return self._result(dated, port, outcome, own)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`; emit alone what found no partner before its window closed."""
        outcome = self._outcome(0)
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        kernel.release_until(self._shell.state, outcome)
        return self._without_records(outcome)

    def flush(self) -> StepResult:
        """Emit alone the records that wait for a partner, and hold nothing."""
        outcome = self._outcome(0)
        kernel.release_all(self._shell.state, outcome)
        return self._without_records(outcome)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, of which the latest of a slot comes last, and set stream time to `stream_time`."""
        self._shell.restore(rows, stream_time, self._replay)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds an equal state, in the order of the buffer."""
        held = time_buffer.held_in_order(self._shell.state.time)
        return self._keys.with_record_keys(tables.changes(self._shell.state, flat_records(_NO_RECORDS), held))

    def _outcome(self, records: int) -> kernel.Outcome:
        """Return an outcome with room for the usual effects of so many records; unwritten pages take no memory."""
        numbers = self._shell.state.time.numbers
        held = int(numbers[time_buffer.HELD])
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[kernel.STREAM_TIME] = self.stream_time
        tally[kernel.HELD_MAX : kernel.HELD_BYTES_MAX + 1] = numbers
        left, right, emitted_after = np.empty((3, held + 2 * records), np.int64)
        return kernel.Outcome(
            left=left,
            right=right,
            emitted_after=emitted_after,
            touched=np.empty(held + records, np.int32),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def _replay(self, rows: pa.RecordBatch) -> None:
        """Apply the rows in the order of time, in which a record's place in its ring is found at once."""
        batch = self._keys.from_changelog(flat_records(columns.records_of(rows)), rows)
        port, waits = tables.port_of(rows), tables.waits_of(rows)
        order = np.lexsort((batch.offset, port, batch.timestamp))
        ordered = FlatRecords(batch.data, *(frozen(column[order]) for column in batch[1:]))
        deleted, outcome = deletions(rows)[order], self._outcome(len(rows))
        port, waits = port[order], waits[order]
        run(
            lambda: kernel.replay(self._shell.state, ordered, port, deleted, waits, self._rules, outcome),
            lambda _: self._shell.add_indexed_slots("slots", kernel.reindex),
        )
        self._settle(ordered, outcome)

    def _result(self, dated: Timestamped, port: Array, outcome: kernel.Outcome, own: FlatRecords) -> StepResult:
        """Return the outcome as tables, and settle the batch. `own`: the records under their own keys."""
        batch, state, before = dated.batch, self._shell.state, self.stream_time
        touched = outcome.touched[: outcome.tally[kernel.TOUCHED]]
        changed = touched[net_buffer_changes(state.time, state.payloads, touched)]
        emissions = tables.emissions(state, batch, outcome)
        late = tables.late(state, own, outcome.unaccepted, port, self._rules)
        rejected = tables.rejected(state, own, outcome.unaccepted, port, dated.newest)
        changes, undo = tables.changes(state, batch, changed), tables.undo(state, batch, changed)
        self._settle(batch, outcome)
        self._shell.stream_time = outcome.tally[kernel.STREAM_TIME]
        held, held_bytes = (int(number) for number in self._shell.state.time.numbers)
        return StepResult(
            emissions=self._keys.with_record_keys(emissions),
            late=late,
            rejected=rejected,
            changes=self._keys.with_record_keys(changes),
            undo=self._keys.with_record_keys(undo),
            counts=measures.counts(outcome, held, held_bytes),
            stream_time=self.stream_time,
            measures=measures.measures(outcome, held, held_bytes),
            passage=self._passage(before, batch, outcome, emissions),
        )

    def _passage(self, before: int, batch: FlatRecords, outcome: kernel.Outcome, emissions: pa.Table) -> Passage:
        """Return how the batch moved stream time. Records without a key do not, nor do those that are rejected."""
        rows, results = int(outcome.tally[kernel.NEXT_ROW]), int(outcome.tally[kernel.RESULTS])
        times, left = (before, self.stream_time), outcome.emitted_after[:results]
        found = late_and_rejected.passage(times, batch, rows, outcome.unaccepted, left)
        keyless = np.flatnonzero(batch.key_length[:rows] < 0)
        reached = np.full(results, MAX_TIMESTAMP)
        has_key = emissions["key"].is_valid().to_numpy()
        for side, partner in enumerate((outcome.right, outcome.left)):
            alone = (partner[:results] == kernel.NO_RECORD) & has_key
            reached[alone] = emissions["timestamp"].to_numpy()[alone] + self._rules.open_for[side]
        return found._replace(ignored=np.append(found.ignored, keyless), reached=reached)

    def _without_records(self, outcome: kernel.Outcome) -> StepResult:
        dated = late_and_rejected.with_timestamps(_NO_RECORDS, self._config, 0)
        return self._result(dated, _port_of(_NO_RECORDS), outcome, dated.batch)

    def _settle(self, batch: FlatRecords, outcome: kernel.Outcome) -> None:
        """Store the payloads of held records, and drop those of the others. Build the batch's tables before."""
        settle(self._shell, kernel.settle, batch, outcome, outcome.tally[kernel.SETTLED :])


def _port_of(records: Records) -> Array:
    return np.zeros(len(records), np.int8) if records.port is None else records.port


def _with_more_results(outcome: kernel.Outcome) -> kernel.Outcome:
    """Return the outcome with room for the results that it lacks, and as many as it has again."""
    done = int(outcome.tally[kernel.RESULTS])
    left, right, emitted_after = np.empty((3, 2 * done + int(outcome.tally[kernel.NEEDED])), np.int64)
    left[:done], right[:done] = outcome.left[:done], outcome.right[:done]
    emitted_after[:done] = outcome.emitted_after[:done]
    return outcome._replace(left=left, right=right, emitted_after=emitted_after)
