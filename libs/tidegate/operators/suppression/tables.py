"""What a batch did to the buffer, in Arrow tables. May import: numpy, pyarrow, contracts, kernels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.operator import Array
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import Batch
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.operators import event_timestamps
from tidegate.operators.suppression import step

PLACE_COLUMNS = (pa.field("place", pa.int64()), pa.field("arrival", pa.int64()))

_RECORD = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.binary(),
    "timestamp": pa.int64(),
    "offset": pa.int64(),
}
_CAUSE = pa.dictionary(pa.int8(), pa.string())
EMISSIONS = pa.schema(_RECORD | {"cause": _CAUSE})
REFUSED = pa.schema(_RECORD | {"cause": _CAUSE, "lateness": pa.int64(), "bound": pa.int64()})
CHANGES = pa.schema([pa.field("op", pa.string()), *pa.schema(_RECORD), *PLACE_COLUMNS])

_CAUSES = pa.array(step.CAUSES)
_REFUSALS = ("", "older than max_lateness", "null key", "negative timestamp", "too far ahead")
_REASONS = pa.array([*_REFUSALS, *event_timestamps.REASONS])
_OPS = pa.array(["put", "delete"])


def emissions(state: step.State, batch: Batch, outcome: step.Outcome) -> pa.Table:
    """The emissions in order, with their causes."""
    count = outcome.tally[step.EMITTED]
    if count == 0:
        return EMISSIONS.empty_table()
    rows = record_columns(state.payloads, batch, outcome.emitted[:count])
    return pa.table(rows | {"cause": _words(outcome.cause[:count], _CAUSES)}, EMISSIONS)


def late(state: step.State, batch: Batch, outcome: step.Outcome, rules: step.Rules) -> pa.Table:
    """The late records, with their lateness and the smallest timestamp that was taken."""
    if outcome.tally[step.REFUSED] == 0:
        return REFUSED.empty_table()
    codes, sources, stream_times = _refused(outcome)
    chosen = codes == step.LATE
    stream_time = stream_times[chosen]
    lateness = pa.array(stream_time - batch.timestamp[sources[chosen]])
    bound = pa.array(stream_time - rules.max_lateness)
    return _refusals(state, batch, sources[chosen], codes[chosen], lateness, bound)


def rejected(state: step.State, batch: Batch, outcome: step.Outcome, newest: int) -> pa.Table:
    """The rejected records, with the reason, and the largest timestamp that was taken where that is the reason."""
    if outcome.tally[step.REFUSED] == 0:
        return REFUSED.empty_table()
    codes, sources, _ = _refused(outcome)
    chosen = codes != step.LATE
    codes = codes[chosen]
    bound = pa.array(np.full(len(codes), newest), mask=codes != step.TOO_FAR_AHEAD)
    return _refusals(state, batch, sources[chosen], codes, pa.nulls(len(codes), pa.int64()), bound)


def changes(state: step.State, batch: Batch, slots: Array) -> pa.Table:
    """The changelog of the slots: `put` with everything for the held ones, `delete` with the key for the others."""
    if len(slots) == 0:
        return CHANGES.empty_table()
    position = state.time.position[slots]
    gone = position == NOT_HELD
    rows = state.row[slots].astype(np.int64)
    sources = np.where(gone | (rows <= 0), ~slots.astype(np.int64), rows - 1)
    return pa.table(
        {"op": _OPS.take(pa.array(gone.astype(np.int8)))}
        | record_columns(state.payloads, batch, sources, only_key=gone)
        | {"place": pa.array(state.time.place[position], mask=gone)}
        | {"arrival": pa.array(state.time.arrival[slots], mask=gone)},
        CHANGES,
    )


def _refused(outcome: step.Outcome) -> tuple[Array, Array, Array]:
    count = outcome.tally[step.REFUSED]
    return outcome.refusal[:count], outcome.refused[:count], outcome.refused_at[:count]


def _refusals(
    state: step.State, batch: Batch, sources: Array, codes: Array, lateness: pa.Array, bound: pa.Array
) -> pa.Table:
    rows = record_columns(state.payloads, batch, sources)
    timestamp = batch.timestamp[sources]
    rows["timestamp"] = pa.array(timestamp, mask=timestamp == NO_TIMESTAMP)
    return pa.table(rows | {"cause": _words(codes, _REASONS), "lateness": lateness, "bound": bound}, REFUSED)


def _words(codes: Array, words: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), words)
