"""What a batch did to the buffer, in Arrow tables. May import: numpy, pyarrow, contracts, kernels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import Batch
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.operators import event_timestamps
from tidegate.operators.suppression import step

PLACE_COLUMNS = (pa.field("place", pa.int64()), pa.field("arrival", pa.int64()))

_REFUSALS = ("", "older than max_lateness", "null key", "negative timestamp", "too far ahead")
REASONS = (*_REFUSALS, *event_timestamps.REASONS)
"""By code of refusal."""


def emissions(state: step.State, batch: Batch, outcome: step.Outcome) -> pa.Table:
    """The emissions in order, with their causes."""
    count = outcome.tally[step.EMITTED]
    rows = record_columns(state.payloads, batch, outcome.emitted[:count])
    return pa.table(rows | {"cause": _words(outcome.cause[:count], step.CAUSES)})


def late(state: step.State, batch: Batch, outcome: step.Outcome, rules: step.Rules) -> pa.Table:
    """The late records, with their lateness and the smallest timestamp that was taken."""
    codes, sources, stream_times = _refused(outcome)
    chosen = codes == step.LATE
    stream_time = stream_times[chosen]
    lateness = pa.array(stream_time - batch.timestamp[sources[chosen]])
    bound = pa.array(stream_time - rules.max_lateness)
    return _refusals(state, batch, sources[chosen], codes[chosen], lateness, bound)


def rejected(state: step.State, batch: Batch, outcome: step.Outcome, newest: int) -> pa.Table:
    """The rejected records, with the reason, and the largest timestamp that was taken where that is the reason."""
    codes, sources, _ = _refused(outcome)
    chosen = codes != step.LATE
    codes = codes[chosen]
    bound = pa.array(np.full(len(codes), newest), mask=codes != step.TOO_FAR_AHEAD)
    return _refusals(state, batch, sources[chosen], codes, pa.nulls(len(codes), pa.int64()), bound)


def changes(state: step.State, batch: Batch, slots: Array) -> pa.Table:
    """The changelog of the slots: `put` with everything for the held ones, `delete` with the key for the others."""
    gone = state.time.position[slots] == NOT_HELD
    rows = state.row[slots].astype(np.int64)
    sources = np.where(gone | (rows <= 0), ~slots.astype(np.int64), rows - 1)
    return pa.table(
        {"op": _words(gone.astype(np.int8), ("put", "delete")).cast(pa.string())}
        | record_columns(state.payloads, batch, sources, only_key=gone)
        | {"place": pa.array(state.time.place[slots], mask=gone)}
        | {"arrival": pa.array(state.time.arrival[slots], mask=gone)}
    )


def _refused(outcome: step.Outcome) -> tuple[Array, Array, Array]:
    count = outcome.tally[step.REFUSED]
    return outcome.refusal[:count], outcome.refused[:count], outcome.refused_at[:count]


def _refusals(
    state: step.State, batch: Batch, sources: Array, codes: Array, lateness: pa.Array, bound: pa.Array
) -> pa.Table:
    rows = record_columns(state.payloads, batch, sources)
    return pa.table(rows | {"cause": _words(codes, REASONS), "lateness": lateness, "bound": bound})


def _words(codes: Array, words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(words))
