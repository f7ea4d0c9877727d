"""Stateless steps, made of functions of a flow: these say what becomes of each row, by whatever means they evaluate it.

A mask or a change must depend on each row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.flow import Flow, Sifted, Stateless
from tidegate.contracts.records import STREAM_PORT
from tidegate.operators.pipeline.passage.results import joined

Mask = Callable[[Flow], npt.NDArray[np.bool_]]
"""A function that says for each row of a flow whether something is true of it; for marks its answer is not used."""

_NONE = np.empty(0, np.int64)


def keeping(wanted: Mask) -> Stateless:
    """Return the step that drops the records that are not wanted. They still pass their time on (`filter`).

    Those without a key do not.
    """

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        kept = wanted(flow)
        found, passing = flow.dropping(kept), flow.passing(kept)
        filtered = flow.record_count - found.record_count
        return Sifted(found if passing.all() else found.take(np.flatnonzero(passing)), _NONE, filtered=filtered)

    return sift


def requiring(valid: Mask, cause: str) -> Stateless:
    """Return the step that rejects, with the cause, the records that are not valid. They move no time (`require`)."""

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        rejected = flow.is_record & ~valid(flow)
        at = np.flatnonzero(rejected)
        # rule: rejected-rows-move-nothing
        return Sifted(flow.take(np.flatnonzero(~rejected)) if len(at) else flow, at, (cause,) * len(at))

    return sift


def changing(change: Callable[[Flow], Flow]) -> Stateless:
    """Return the step that changes rows in place: their values, keys or columns, not their number or order."""

    def sift(*flows: Flow) -> Sifted:
        return Sifted(change(*flows), _NONE)

    return sift


def of_port(port: int) -> Stateless:
    """Return the step that takes the records of one of the pipeline's inputs. Others do not pass their time on."""

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        own = np.full(len(flow), port == STREAM_PORT) if flow.port is None else flow.port == port
        taken = replace(flow.take(np.flatnonzero(own)), port=None)
        return Sifted(taken, _NONE, filtered=int((flow.is_record & ~own).sum()))

    return sift


def merging() -> Stateless:
    """Return the step that merges flows by the input record that caused each row, and then in the order of the flows.

    So the order does not depend on how batches are cut: whatever one input record causes is in one batch.
    """

    def sift(*flows: Flow) -> Sifted:
        flow = joined(*(_with_same_columns(flow, flows) for flow in flows))
        return Sifted(flow.take(np.argsort(flow.source, kind="stable")), _NONE)

    return sift


def _with_same_columns(flow: Flow, flows: tuple[Flow, ...]) -> Flow:
    """Return the flow with the columns that all of the flows have."""
    if all(other.columns is None for other in flows):
        return flow
    names = [set(other.columns.schema.names if other.columns is not None else ()) for other in flows]
    shared = set.intersection(*names)
    if flow.columns is None:
        return replace(flow, columns=pa.record_batch({"": pa.nulls(len(flow))}).select([]))
    return replace(flow, columns=flow.columns.select([name for name in flow.columns.schema.names if name in shared]))
