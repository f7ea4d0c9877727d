"""Records that an operator refuses: rejected ones, and late ones.

Neither moves stream time, and both are rows that anyone can query.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.config import OperatorRules
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.operator import Array
from tidegate.contracts.records import UNREADABLE, Records
from tidegate.kernels import lateness_bins, window_keys
from tidegate.kernels.columns import record_columns
from tidegate.kernels.compiled import inlined
from tidegate.kernels.payloads import Batch, Payloads, batch_of
from tidegate.operators import event_timestamps, numbers
from tidegate.operators.result_tables import REFUSED, words

ACCEPTED, LATE, NULL_KEY, NULL_VALUE, NEGATIVE_TIMESTAMP, OUT_OF_RANGE, TOO_FAR_AHEAD, UNDECODABLE = range(8)
"""Why a record is refused; codes from UNDECODABLE on say why it has no timestamp."""

NO_NUMBER = UNDECODABLE + len(event_timestamps.REASONS)
"""From here on the codes say why it has no number."""

NO_WINDOW = NO_NUMBER + len(numbers.REASONS)
"""From here on the codes say why it has no window."""

NO_BATCH = NO_WINDOW + len(window_keys.REASONS)
"""From here on the codes say why a record batch, which the row stands for, cannot be read."""

_FIRST_REASONS = ("", "", "null key", "null value", "negative timestamp", "timestamp out of range", "too far ahead")
_REASONS = pa.array([*_FIRST_REASONS, *event_timestamps.REASONS, *numbers.REASONS, *window_keys.REASONS, *UNREADABLE])

AHEAD = ", though it is ahead of stream time"
"""Added to the cause of a late record whose timestamp says that it is early: its window is closed all the same."""

COUNT, LATE_COUNT, LATENESS_SUM, LATENESS_MAX = range(4)
NUMBERS = 4

MAX = 2**63 - 1


class Refused(NamedTuple):
    """What a batch refused: rows, why, and T then. `numbers`: how many, how many late, and the lateness of all that
    were not rejected; `bins`: the same lateness, counted as `kernels.lateness_bins` does."""

    row: Array
    code: Array
    stream_time: Array
    numbers: Array
    bins: Array


class Dated(NamedTuple):
    """Records for kernels, with their event timestamps. `undecodable`: a code per row, 0 where there is a timestamp.
    `newest`: the largest timestamp that is taken."""

    batch: Batch
    undecodable: Array
    newest: int


def dated(records: Records, config: OperatorRules, clock_ms: int) -> Dated:
    """The records of a batch of that clock."""
    timestamps, codes = event_timestamps.event_timestamps(records, config.timestamp)
    undecodable = np.where(codes > 0, codes + (UNDECODABLE - 1), 0).astype(np.int8)
    if records.unreadable is not None:
        undecodable = np.where(records.unreadable > 0, records.unreadable + np.int8(NO_BATCH - 1), undecodable)
    newest = MAX_TIME if config.max_ahead is None else min(clock_ms + config.max_ahead, MAX_TIME)
    return Dated(batch_of(records, timestamps), undecodable, newest)


def no_refusals(records: int) -> Refused:
    """Room for so many."""
    return Refused(
        row=np.empty(records, np.int64),
        code=np.empty(records, np.int8),
        stream_time=np.empty(records, np.int64),
        numbers=np.zeros(NUMBERS, np.int64),
        bins=np.zeros(lateness_bins.BINS, np.int64),
    )


@inlined
def bad_timestamp(timestamp: int, undecodable: int, newest: int) -> Any:
    """Why the record is rejected for its timestamp, or ACCEPTED."""
    if undecodable != 0:
        return undecodable
    if timestamp < 0:
        return NEGATIVE_TIMESTAMP
    if timestamp <= newest:
        return ACCEPTED
    return OUT_OF_RANGE if timestamp > MAX_TIME else TOO_FAR_AHEAD


@inlined
def refuse(refused: Refused, row: int, code: int, timestamp: int, stream_time: int) -> None:
    """The row is refused."""
    at = refused.numbers[COUNT]
    refused.row[at] = row
    refused.code[at] = code
    refused.stream_time[at] = stream_time
    refused.numbers[COUNT] += 1
    if code == LATE:
        refused.numbers[LATE_COUNT] += 1
        observe_lateness(refused, timestamp, stream_time)


@inlined
def observe_lateness(refused: Refused, timestamp: int, stream_time: int) -> None:
    """Count how late a record is that was not rejected: how far behind stream time, 0 if it is ahead.

    A late record can be ahead of stream time: its window was flushed, or its timestamp is not event time.
    """
    lateness = max(0, stream_time - timestamp)
    add(refused.numbers, LATENESS_SUM, lateness)
    refused.numbers[LATENESS_MAX] = max(refused.numbers[LATENESS_MAX], lateness)
    lateness_bins.count(refused.bins, lateness)


@inlined
def add(numbers: Array, name: int, amount: int) -> None:
    """The sum is larger by the amount, or as large as a number can be."""
    numbers[name] += min(amount, MAX - numbers[name])


def late(payloads: Payloads, batch: Batch, refused: Refused, max_lateness: int, cause: str) -> pa.Table:
    """The late records, with their lateness and the smallest timestamp that was taken."""
    count = refused.numbers[COUNT]
    chosen = np.flatnonzero(refused.code[:count] == LATE)
    if len(chosen) == 0:
        return REFUSED.empty_table()
    rows, stream_time = refused.row[chosen], refused.stream_time[chosen]
    behind = stream_time - batch.timestamp[rows]
    causes = words(behind < 0, pa.array([cause, cause + AHEAD]))
    return _table(payloads, batch, rows, causes, pa.array(np.maximum(behind, 0)), pa.array(stream_time - max_lateness))


def rejected(payloads: Payloads, batch: Batch, refused: Refused, newest: int) -> pa.Table:
    """The rejected records, with the reason, and the largest timestamp that was taken where that is the reason."""
    count = refused.numbers[COUNT]
    chosen = np.flatnonzero(refused.code[:count] != LATE)
    if len(chosen) == 0:
        return REFUSED.empty_table()
    codes = refused.code[chosen]
    bound = np.where(codes == OUT_OF_RANGE, MAX_TIME, newest)
    bound = pa.array(bound, mask=(codes != OUT_OF_RANGE) & (codes != TOO_FAR_AHEAD))
    lateness = pa.nulls(len(codes), pa.int64())
    return _table(payloads, batch, refused.row[chosen], words(codes, _REASONS), lateness, bound)


def _table(
    payloads: Payloads, batch: Batch, rows: Array, causes: pa.Array, lateness: pa.Array, bound: pa.Array
) -> pa.Table:
    columns = record_columns(payloads, batch, rows)
    timestamp = batch.timestamp[rows]
    columns["timestamp"] = pa.array(timestamp, mask=timestamp == NO_TIMESTAMP)
    return pa.table(columns | {"cause": causes, "lateness": lateness, "bound": bound}, REFUSED)


def measures(refused: Refused, records: int) -> dict[str, int]:
    """The lateness of so many records in ms: the sum over all that were not rejected, the largest, how many, and how
    many at most that late, each bin by its bound."""
    numbers = [int(number) for number in refused.numbers]
    return lateness_bins.measures(refused.bins) | {
        "lateness_sum": numbers[LATENESS_SUM],
        "lateness_max": numbers[LATENESS_MAX],
        "lateness_count": records - numbers[COUNT] + numbers[LATE_COUNT],
    }
