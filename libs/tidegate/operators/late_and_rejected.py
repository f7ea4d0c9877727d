"""Late and rejected records: the codes of the reasons, and the tables of these records.

Neither kind advances stream time. Both are written to the lake as rows that can be queried. `bad_timestamp` decides
which records are rejected for their timestamp; the `step` of each operator decides which records are late.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.event_time import MAX_TIME, NO_STREAM_TIME, NO_TIMESTAMP
from tidegate.contracts.flow import Passage
from tidegate.contracts.operator import Array
from tidegate.contracts.records import UNREADABLE, Records
from tidegate.kernels import lateness_bins, window_keys
from tidegate.kernels.columns import record_columns
from tidegate.kernels.compiled import inlined
from tidegate.kernels.payloads import LENGTHS, FlatRecords, Payloads, flat_records, frozen
from tidegate.operators.json_values import event_timestamps, numbers
from tidegate.operators.result_tables import LATE_AND_REJECTED, NONE_REFUSED, dictionary_column

ACCEPTED, LATE, NULL_KEY, NULL_VALUE, NEGATIVE_TIMESTAMP, OUT_OF_RANGE, TOO_FAR_AHEAD, UNDECODABLE = range(8)
"""Why a record is late or rejected. Codes from UNDECODABLE on say why it has no timestamp."""

NO_NUMBER = UNDECODABLE + len(event_timestamps.REASONS)
"""Codes from here on say why a record has no number."""

NO_WINDOW = NO_NUMBER + len(numbers.REASONS)
"""Codes from here on say why a record has no window."""

NO_BATCH = NO_WINDOW + len(window_keys.REASONS)
"""Codes from here on say why a record batch cannot be read; one row stands for the batch."""

TIME_ONLY = NO_BATCH + len(UNREADABLE)
"""The code of a row that only passes its time on: a time mark, or a row that a filter dropped."""

_FIRST_REASONS = ("", "", "null key", "null value", "negative timestamp", "timestamp out of range", "too far ahead")
_REASONS = pa.array([*_FIRST_REASONS, *event_timestamps.REASONS, *numbers.REASONS, *window_keys.REASONS, *UNREADABLE])

AHEAD = ", though it is ahead of stream time"
"""Appended to the cause of a late record whose timestamp is ahead of stream time: its window is already closed."""

COUNT, LATE_COUNT, LATENESS_SUM, LATENESS_MAX, TIME_ONLY_COUNT = range(5)
NUMBERS = 5

MAX = 2**63 - 1


class Unaccepted(NamedTuple):
    """The late and rejected records of a batch: row, code of the reason, and stream time when the record was read.

    `numbers`: the count of both, the count of late records, then the sum and the maximum of the lateness of all records
    that were not rejected, and the count of rows that only pass time on. `bins`: that lateness in the bins of
    `kernels.lateness_bins`.
    """

    row: Array
    code: Array
    stream_time: Array
    numbers: Array
    bins: Array


class Timestamped(NamedTuple):
    """Records for kernels, with their event timestamps.

    `missing`: a code per row, 0 where there is a timestamp. `newest`: the largest timestamp that is accepted.
    """

    batch: FlatRecords
    missing: Array
    newest: int


def with_timestamps(records: Records, config: OperatorRules, clock_ms: int) -> Timestamped:
    """Return the records of a batch with their event timestamps. `clock_ms`: the batch's clock, for `max_ahead`."""
    timestamps, codes = event_timestamps.event_timestamps(records, config.timestamp)
    missing = np.where(codes > 0, codes + (UNDECODABLE - 1), 0).astype(np.int8)
    if records.unreadable is not None:
        # rule: unreadable-batch-rejected/row
        missing = np.where(records.unreadable > 0, records.unreadable + np.int8(NO_BATCH - 1), missing)
    newest = MAX_TIME if config.max_ahead is None else min(clock_ms + config.max_ahead, MAX_TIME)
    if records.time_only is None:
        return Timestamped(flat_records(records, timestamps), missing, newest)
    return _with_time_only(records.time_only, Timestamped(flat_records(records, timestamps), missing, newest))


def _with_time_only(time_only: Array, dated: Timestamped) -> Timestamped:
    """Return the records with their code TIME_ONLY, without their bytes; a time that is refused moves nothing."""
    times, batch = dated.batch.timestamp, dated.batch
    # rule: refused-time-moves-nothing
    refused = (dated.missing > 0) | (times < 0) | (times > dated.newest)
    times = np.where(time_only & refused, NO_STREAM_TIME, times)
    lengths = {name: frozen(np.where(time_only, 0, getattr(batch, name))) for name in LENGTHS}
    shown = batch._replace(timestamp=frozen(times), **lengths)
    missing = np.where(time_only, TIME_ONLY, dated.missing).astype(np.int8)
    return Timestamped(shown, missing, dated.newest)


def none_yet(records: int) -> Unaccepted:
    """Return an empty Unaccepted with room for so many records."""
    return Unaccepted(
        row=np.empty(records, np.int64),
        code=np.empty(records, np.int8),
        stream_time=np.empty(records, np.int64),
        numbers=np.zeros(NUMBERS, np.int64),
        bins=np.zeros(lateness_bins.BINS, np.int64),
    )


@inlined
def bad_timestamp(timestamp: int, missing: int, newest: int) -> Any:
    """Return the code for which a record with this timestamp is rejected, or ACCEPTED."""
    if missing != 0:
        return missing
    if timestamp < 0:
        return NEGATIVE_TIMESTAMP
    # rule: time-range
    if timestamp <= newest:
        return ACCEPTED
    return OUT_OF_RANGE if timestamp > MAX_TIME else TOO_FAR_AHEAD


@inlined
def note(unaccepted: Unaccepted, row: int, code: int, timestamp: int, stream_time: int) -> None:
    """Note that the row is late or rejected, with the code of the reason; count it if it only passes its time on."""
    if code == TIME_ONLY:
        unaccepted.numbers[TIME_ONLY_COUNT] += 1
        return
    at = unaccepted.numbers[COUNT]
    unaccepted.row[at] = row
    unaccepted.code[at] = code
    unaccepted.stream_time[at] = stream_time
    unaccepted.numbers[COUNT] += 1
    if code == LATE:
        unaccepted.numbers[LATE_COUNT] += 1
        observe_lateness(unaccepted, timestamp, stream_time)


@inlined
def observe_lateness(unaccepted: Unaccepted, timestamp: int, stream_time: int) -> None:
    """Count the lateness of a record that was not rejected: how far it is behind stream time, 0 if it is ahead.

    A late record can be ahead of stream time too: its window was flushed, or its timestamp is not event time.
    """
    lateness = max(0, stream_time - timestamp)
    add(unaccepted.numbers, LATENESS_SUM, lateness)
    unaccepted.numbers[LATENESS_MAX] = max(unaccepted.numbers[LATENESS_MAX], lateness)
    lateness_bins.count(unaccepted.bins, lateness)


@inlined
def add(numbers: Array, name: int, amount: int) -> None:
    """Add the amount to the sum `numbers[name]`, which stays at the largest int64 instead of overflowing."""
    numbers[name] += min(amount, MAX - numbers[name])


def late(payloads: Payloads, batch: FlatRecords, unaccepted: Unaccepted, max_lateness: int, cause: str) -> pa.Table:
    """Return the late records, each with its lateness and the smallest timestamp that was not late (the bound)."""
    count = unaccepted.numbers[COUNT]
    chosen = np.flatnonzero(unaccepted.code[:count] == LATE)
    if len(chosen) == 0:
        return NONE_REFUSED
    rows, stream_time = unaccepted.row[chosen], unaccepted.stream_time[chosen]
    behind = stream_time - batch.timestamp[rows]
    causes = dictionary_column(behind < 0, pa.array([cause, cause + AHEAD]))
    # rule: lateness-not-negative
    return _table(payloads, batch, rows, causes, pa.array(np.maximum(behind, 0)), pa.array(stream_time - max_lateness))


def rejected(payloads: Payloads, batch: FlatRecords, unaccepted: Unaccepted, newest: int) -> pa.Table:
    """Return the rejected records, each with the reason.

    `bound` is the largest accepted timestamp for those too far ahead or out of range, otherwise null.
    """
    count = unaccepted.numbers[COUNT]
    chosen = np.flatnonzero(unaccepted.code[:count] != LATE)
    if len(chosen) == 0:
        return NONE_REFUSED
    codes = unaccepted.code[chosen]
    bound = np.where(codes == OUT_OF_RANGE, MAX_TIME, newest)
    bound = pa.array(bound, mask=(codes != OUT_OF_RANGE) & (codes != TOO_FAR_AHEAD))
    lateness = pa.nulls(len(codes), pa.int64())
    return _table(payloads, batch, unaccepted.row[chosen], dictionary_column(codes, _REASONS), lateness, bound)


def _table(
    payloads: Payloads, batch: FlatRecords, rows: Array, causes: pa.Array, lateness: pa.Array, bound: pa.Array
) -> pa.Table:
    columns = record_columns(payloads, batch, rows)
    timestamp = batch.timestamp[rows]
    columns["timestamp"] = pa.array(timestamp, mask=timestamp == NO_TIMESTAMP)
    return pa.table(columns | {"cause": causes, "lateness": lateness, "bound": bound}, LATE_AND_REJECTED)


def records_in(unaccepted: Unaccepted, rows: int) -> int:
    """Return how many of the rows that were read are records."""
    return rows - int(unaccepted.numbers[TIME_ONLY_COUNT])


def passage(
    times: tuple[int, int], batch: FlatRecords, rows: int, unaccepted: Unaccepted, emitted_after: Array
) -> Passage:
    """Return how the first `rows` rows of a batch moved stream time, and when the batch's results left.

    `times`: stream time before and after the batch. `emitted_after`: per result the row after which it left.
    """
    return Passage(*times, batch.timestamp[:rows], unaccepted.row[: unaccepted.numbers[COUNT]], emitted_after)


def measures(unaccepted: Unaccepted, rows: int) -> dict[str, int]:
    """Return the measures of lateness in ms: sum, maximum and count over the records that were not rejected, and bins.

    `rows`: how many rows were read. A bin counts the records up to its bound and above the bound before.
    """
    numbers = [int(number) for number in unaccepted.numbers]
    return lateness_bins.measures(unaccepted.bins) | {
        "lateness_sum": numbers[LATENESS_SUM],
        "lateness_max": numbers[LATENESS_MAX],
        "lateness_count": records_in(unaccepted, rows) - numbers[COUNT] + numbers[LATE_COUNT],
    }
