"""Stateless steps that look at no column: what chooses the rows of one of several inputs, and what merges flows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidegate.contracts.flow import Flow, Sifted, Stateless
from tidegate.contracts.records import STREAM_PORT
from tidegate.operators.pipeline.passage.results import joined

_NONE = np.empty(0, np.int64)


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
        # rule: merged-by-cause
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
