"""Recompute what a batch emitted in a partition, from the state before it and the records that it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar, cast

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta, Pin
from tidegate.contracts.operator import OperatorState, StepResult, TableReader
from tidegate.contracts.records import Records
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.doctor.change_preview import table_state
from tidegate.runtime.kafka.client import PROBE_TIMEOUT_S, KafkaClient, client
from tidegate.runtime.kafka.fetch import Fetched, concatenate, fetch
from tidegate.runtime.task.merging import merged, part_of
from tidegate.runtime.task.messages import InputRange
from tidegate.state.raised_offsets import raised_now

PIECE_BYTES = 2**24
"""Most bytes of input that are fetched at a time."""

S = TypeVar("S", bound=OperatorState)

Input = Callable[[BatchMeta, BatchMeta, int], Iterator[Records]]
"""`read(before, meta, partition)`: yields the records that the batch `meta` has read in the partition, in pieces, at
least one."""


def from_topic(application: Application, name: str, deadline_s: float) -> Input:
    """Return the input of an operator as Kafka still has it. `deadline_s`: how long a fetch may take.

    What it returns raises EngineError if no broker answers, and OffsetsGone if records were deleted.
    """

    def read(before: BatchMeta, meta: BatchMeta, partition: int) -> Iterator[Records]:
        kafka = client(application.kafka)
        kafka.probe(PROBE_TIMEOUT_S)  # a fetch would wait longer for a broker that is away
        first, *others = _ranges(before, meta, partition)
        pieces = partial(_pieces, kafka, partition, deadline_s)
        if not others:
            yield from pieces(first)
            return
        config = config_of(meta.settings) if meta.settings else application.operators[name]
        found = [_whole(each, pieces(each)) for each in (first, *others)]
        yield merged([part_of(*each, config, meta.clock) for each in found], config.streams).records

    return read


def _ranges(before: BatchMeta, meta: BatchMeta, partition: int) -> list[InputRange]:
    """Return what the batch has read of each input topic."""
    read = [(topic, before.readings(topic)[partition], meta.readings(topic)[partition]) for topic in meta.input_topics]
    return [InputRange(topic, was.next_offset, now.next_offset, *was[1:]) for topic, was, now in read]


def _pieces(kafka: KafkaClient, partition: int, deadline_s: float, wanted: InputRange) -> Iterator[Records]:
    """Yield the records of the range, in pieces, at least one."""
    topic, start, end, *_ = wanted
    while True:
        found = fetch(kafka, topic, partition, start, end, max_bytes=PIECE_BYTES, deadline_s=deadline_s)
        yield found.records
        start = found.next_offset
        if start >= end:
            return


def _whole(wanted: InputRange, pieces: Iterable[Records]) -> tuple[InputRange, Fetched]:
    """Return the range with all of its records: a batch reads a bounded number of bytes."""
    return wanted, Fetched(records=concatenate([*pieces]), next_offset=wanted.end)


def with_tables(state: S, application: Application, pins: Mapping[str, Pin], meta: BatchMeta, partition: int) -> S:
    """Return the state after it was given its tables at these pins, as complete as they were for the batch."""
    for table, pin in pins.items():
        read = table_state(application, table, pin, partition)
        cast(TableReader, state).read_table(read, meta.changed[partition].open_until(table), table)
    return state


def results_of(
    state: OperatorState, before: BatchMeta, meta: BatchMeta, partition: int, read: Input
) -> Iterator[StepResult]:
    """Yield what the batch did in the partition, piece by piece. `state`: that before the batch; it is changed.

    `before`: the metadata of the batch before `meta`. Raise what `read` raises.
    """
    was, now = before.partitions[partition], meta.partitions[partition]
    if meta.action == "flush":
        yield state.flush()
    elif was.position == now.position and was.stream_time != now.stream_time:
        yield state.advance(now.stream_time, meta.clock)
    elif was.position == now.position:
        yield state.step(Records.from_rows([]), meta.clock)
    else:
        for records in read(before, meta, partition):
            yield state.step(records.raised(raised_now(was.raised)), meta.clock)


def emissions_of(results: Iterator[StepResult]) -> pa.Table:
    """Return the emissions of all pieces, in their order in the log; plain texts instead of dictionaries."""
    return pa.concat_tables([_plain(result.emissions) for result in results]).combine_chunks()


def _plain(rows: pa.Table) -> pa.Table:
    types = [each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in rows.schema]
    return rows.cast(pa.schema(zip(rows.column_names, types, strict=True)))
