"""Emissions on their way to Kafka: opened by a task, ended by the driver, made again from the log after a crash.

May import: contracts, kernels' codec, runtime.kafka, state. Both ways in build the same columns from the same rows, so
that what is published again is what was published at first, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.kill_points import reach
from tidegate.kernels.record_batch import OutgoingColumns, Stamp
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.transactions import Producer, commit_offset, send_emissions
from tidegate.state.decisions import format_mark


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where one partition's emissions of one batch go, and the mark and the input offset that travel with them."""

    operator: str
    input: str
    output: str
    group: str
    table_id: str
    partition: int
    batch: int
    next_offset: int
    output_limit: int
    deadline_s: float


def open_output(client: KafkaClient, producer: Producer, to: Destination, emissions: pa.Table) -> Producer:
    """The emissions, the input offset and the mark stand in an open transaction of the partition; nothing is ended.

    Raises OutputTooLarge before anything is sent, EngineError when the broker does not take it.
    """
    columns, stamp = outgoing(to, emissions)
    producer = send_emissions(
        client,
        producer,
        to.output,
        to.partition,
        columns,
        stamp,
        max_batch_bytes=to.output_limit,
        deadline_s=to.deadline_s,
        after_half=lambda: reach("after_half_of_output"),
    )
    return commit_offset(
        client,
        producer,
        to.group,
        to.input,
        to.partition,
        to.next_offset,
        format_mark(to.table_id, to.batch),
        deadline_s=to.deadline_s,
    )


def outgoing(to: Destination, emissions: pa.Table) -> tuple[OutgoingColumns, Stamp]:
    """The emissions (columns key, value, headers, timestamp, cause; in seq order from 0) as the codec takes them.

    Where they have windows (columns window_start, window_end), their bounds are headers.
    """
    causes = pc.dictionary_encode(_whole(emissions["cause"].cast(pa.string())))
    columns = OutgoingColumns(
        key=_whole(emissions["key"]),
        value=_whole(emissions["value"]),
        headers=_whole(emissions["headers"]),
        timestamp=_whole(emissions["timestamp"]).to_numpy(),
    )
    stamp = Stamp(
        operator=to.operator,
        batch=to.batch,
        first_seq=0,
        cause_codes=causes.indices.to_numpy().astype(np.int8),
        causes=causes.dictionary.to_pylist(),
        windows=_windows(emissions),
    )
    return columns, stamp


def _windows(emissions: pa.Table) -> tuple[Any, Any] | None:
    if "window_start" not in emissions.column_names or emissions["window_start"].null_count:
        return None
    return _whole(emissions["window_start"]).to_numpy(), _whole(emissions["window_end"]).to_numpy()


def _whole(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
