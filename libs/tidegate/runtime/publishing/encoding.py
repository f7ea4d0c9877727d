"""Encoding and sending of emissions and dead letters in a Kafka transaction that the driver ends later.

A task sends the output of its batch; after a crash the driver sends it again from the log. Both build the same columns
from the same rows, so that what is published again equals the first output byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import Raised
from tidegate.contracts.config.key_rules import AddedWindows
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.errors import OutputTooLarge
from tidegate.contracts.kill_points import reach
from tidegate.contracts.operator import Array
from tidegate.kernels import window_keys
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.kernels.record_format.record_batch import Origin, OutgoingColumns, Stamp
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.transactions import Outgoing, Producer, encoded, produce
from tidegate.runtime.publishing.dead_letters import as_dead_letters
from tidegate.runtime.publishing.topics import OutputRoute
from tidegate.state.raised_offsets import input_offsets

PIECE_BYTES = 2**30
"""Bytes of keys, values and headers encoded at a time: Arrow's columns and the encoder count in 32 bits."""


class Rows(NamedTuple):
    """The output of one partition and batch as in the log; each table is in order of `seq`, from 0.

    All tables have key, value, headers, timestamp and cause. Emissions also have window_start and window_end if there
    are windows; late and rejected rows also have offset.
    """

    emissions: pa.Table
    late: pa.Table
    rejected: pa.Table


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where one partition's output of one batch goes.

    `raised`: where the log's offsets differ from those of the input, which dead letters name.
    """

    route: OutputRoute
    partition: int
    batch: int
    raised: Raised = ()


class PartitionOutput(NamedTuple):
    """One partition's output of one batch, where it goes, and the partition's producer."""

    producer: Producer
    to: Destination
    rows: Rows


class Opened(NamedTuple):
    """An open transaction with the output of some partitions; its producer is that of the first one."""

    producer: Producer
    partitions: tuple[int, ...]


class Prepared(NamedTuple):
    """Output that is ready to be sent in one transaction: queues of record batches, the first of each encoded."""

    producer: Producer
    partitions: tuple[int, ...]
    queues: list[Iterator[Outgoing]]


def prepare_output(outputs: Sequence[PartitionOutput]) -> Prepared | None:
    """Return the output of partitions, ready for one transaction.

    Return None without output. Raise OutputTooLarge if a record is larger than its topic allows.
    """
    # rule: no-empty-transaction
    sent = [output for output in outputs if _has_rows(output.to, output.rows)]
    if not sent:
        return None
    producer = sent[0].producer
    partitions = tuple(to.partition for _, to, _ in sent)
    queues = [*(_queue(producer, to, rows) for _, to, rows in sent), *_queues_by_key(sent)]
    return Prepared(producer, partitions, [*map(_begun, queues)])


def _begun(queue: Iterator[Outgoing]) -> Iterator[Outgoing]:
    """Return the queue with its first batch encoded."""
    return chain([*islice(queue, 1)], queue)


def open_output(client: KafkaClient, prepared: Prepared, deadline_s: float) -> Opened:
    """Send the output in one transaction, and leave that open. It lacks the marks still.

    Raise OutputTooLarge or EngineError if the broker does not accept the output.
    """
    # rule: kill-points/half
    producer = produce(
        client,
        prepared.producer,
        prepared.queues,
        deadline_s=deadline_s,
        after_first=lambda: reach("after_half_of_output"),
    )
    return Opened(producer, prepared.partitions)


def _has_rows(to: Destination, rows: Rows) -> bool:
    """Return whether any of the rows go to a topic."""
    if to.route.outlets.dead_letters is not None and (rows.late.num_rows or rows.rejected.num_rows):
        return True
    return any(_has_emissions(output, rows.emissions) for output in to.route.outlets.outputs)


def _has_emissions(output: Output, emissions: pa.Table) -> bool:
    """Return whether any of the emissions are written to the output."""
    if output.step is None:
        return bool(emissions.num_rows)
    return output.step in pc.unique(emissions["step"]).to_pylist()


def _queue(producer: Producer, to: Destination, rows: Rows) -> Iterator[Outgoing]:
    """Yield the record batches for the topics, one topic after the other."""
    for topic, pieces in _topic_outputs(to, rows):
        # rule: same-partition
        yield from _encoded(producer, to.route, topic, to.partition, pieces)


def _encoded(
    producer: Producer, route: OutputRoute, topic: str, partition: int, pieces: Iterable[tuple[OutgoingColumns, Stamp]]
) -> Iterator[Outgoing]:
    """Yield the record batches for a partition of a topic. Raise OutputTooLarge, with the place."""
    try:
        yield from encoded(producer, topic, partition, pieces, max_batch_bytes=route.limits[topic])
    except OutputTooLarge as error:
        place = f"topic {topic}, partition {partition}"
        raise OutputTooLarge(error.problem, value=f"{place}: {error.value}", remedy=error.remedy) from error


def _queues_by_key(outputs: Sequence[PartitionOutput]) -> Iterator[Iterator[Outgoing]]:
    """Yield a queue for each partition of the topics where keys decide, with what all input partitions have for it.

    One queue has all of it, because a producer numbers its batches for a partition one after the other.
    """
    producer, route = outputs[0].producer, outputs[0].to.route
    for output in route.outlets.outputs:
        if output.partitions is None:
            continue
        pieces: dict[int, list[Iterator[tuple[OutgoingColumns, Stamp]]]] = {}
        for _, to, rows in outputs:
            for partition, emissions, seq in _by_key(to, output, output.partitions, rows.emissions):
                pieces.setdefault(partition, []).append(_of_emissions(to, output, emissions, seq))
        for partition, found in sorted(pieces.items()):
            # rule: partitions-of-keys/one-queue
            yield _encoded(producer, route, output.topic, partition, chain.from_iterable(found))


def _by_key(
    to: Destination, output: Output, partitions: int, emissions: pa.Table
) -> Iterator[tuple[int, pa.Table, Array]]:
    """Yield each partition of the topic that has some of the emissions, these in their order, and their seq."""
    seq, own = emissions_for(output, emissions)
    partition = output_partitions(own["key"], partitions, to.partition)
    order = np.argsort(partition, kind="stable")
    places, begins = np.unique(partition[order], return_index=True)
    for each, rows in zip(places.tolist(), np.split(order, begins[1:]), strict=False):
        yield each, own.take(pa.array(rows)), seq[rows]


def output_partitions(keys: pa.ChunkedArray, partitions: int, of_input: int) -> Array:
    """Return the partition (int64) of each key, as Kafka's clients choose it among so many.

    These put a record without a key anywhere; here its partition is that of its input, modulo `partitions`.
    """
    # rule: partitions-of-keys/murmur2
    found = partitions_of(keys, partitions)
    return np.where(found < 0, of_input % partitions, found)


def _topic_outputs(to: Destination, rows: Rows) -> Iterator[tuple[str, Iterator[tuple[OutgoingColumns, Stamp]]]]:
    """Yield each topic with its records, in pieces that are ready to be encoded."""
    for output in to.route.outlets.outputs:
        if output.partitions is None:
            seq, emissions = emissions_for(output, rows.emissions)
            yield output.topic, _of_emissions(to, output, emissions, seq)
    if to.route.outlets.dead_letters is not None and (rows.late.num_rows or rows.rejected.num_rows):
        letters = as_dead_letters(rows.late, rows.rejected, times_in_values=to.route.times_in_values)
        yield to.route.outlets.dead_letters, (_dead_letters(to, *piece) for piece in _pieces_of_topics(to, letters))


def _of_emissions(
    to: Destination, output: Output, emissions: pa.Table, seq: Array
) -> Iterator[tuple[OutgoingColumns, Stamp]]:
    for first, piece in _pieces(emissions):
        yield outgoing(to, piece, output, seq[first : first + piece.num_rows])


def emissions_for(output: Output, emissions: pa.Table) -> tuple[Array, pa.Table]:
    """Return the seq of the emissions that are written to the output, and these.

    `emissions`: of a batch, by seq from 0. All emissions of a step follow each other.
    """
    if output.step is None:
        return np.arange(emissions.num_rows), emissions
    # rule: sink-of-step
    names = emissions["step"].dictionary_encode().combine_chunks()  # in a log, each row has the name itself
    own = np.flatnonzero(names.indices.to_numpy() == names.dictionary.index(output.step).as_py())
    return own, emissions.slice(int(own[0]) if len(own) else 0, len(own))


def _pieces(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows in pieces of at most PIECE_BYTES (at least one row), each with the index of its first row."""
    if rows.num_rows and rows.nbytes <= PIECE_BYTES:  # nearly always, and this is quick
        yield 0, rows
        return
    sizes = np.zeros(rows.num_rows, np.int64)
    for name in ("key", "value", "headers"):
        sizes += pc.fill_null(pc.binary_length(rows[name]), 0).to_numpy()
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield first, rows.slice(first, last - first)
        first = last


def outgoing(to: Destination, emissions: pa.Table, output: Output, seq: Array) -> tuple[OutgoingColumns, Stamp]:
    """Return emissions (columns key, value, headers, timestamp, cause), which have these `seq`, for the encoder.

    Windows (columns window_start, window_end) become headers or part of the keys, as the output says.
    """
    causes = _encoded_once(_whole(emissions["cause"]))
    stamp = Stamp(
        operator=to.route.operator,
        batch=to.batch,
        seq=seq,
        partition=None if output.partitions is None else to.partition,
        cause_codes=causes.indices.to_numpy().astype(np.int8),
        causes=causes.dictionary.to_pylist(),
        windows=_windows(emissions) if output.windows == "headers" else None,
    )
    return _columns(emissions, output.windows), stamp


def _encoded_once(texts: pa.Array) -> pa.DictionaryArray:
    """Return the texts as a dictionary array, as which a batch has them; from the log they come one by one."""
    return texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)


def _pieces_of_topics(to: Destination, letters: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the dead letters in pieces of one input topic each, with the topic and the index of the first."""
    if "topic" not in letters.column_names:
        yield from ((to.route.input, first, piece) for first, piece in _pieces(letters))
        return
    begin = 0
    for topic in pc.unique(letters["topic"]).to_pylist():
        own = letters.filter(pc.equal(letters["topic"], topic))
        yield from ((topic, begin + first, piece) for first, piece in _pieces(own))
        begin += own.num_rows


def _dead_letters(to: Destination, topic: str, first_seq: int, letters: pa.Table) -> tuple[OutgoingColumns, Stamp]:
    """Return the dead letters for the encoder, in order of their offsets, with their origin as headers."""
    reasons = pc.dictionary_encode(_whole(letters["reason"]))
    codes = reasons.indices.to_numpy()
    _, first_of_code = np.unique(codes, return_index=True)
    offsets = _whole(letters["offset"]).to_numpy()
    # rule: raised-offsets/dead-letters
    if "topic" not in letters.column_names:
        offsets = input_offsets(to.raised, offsets)
    stamp = Stamp(
        operator=to.route.operator,
        batch=to.batch,
        seq=np.arange(first_seq, first_seq + letters.num_rows),
        cause_codes=codes.astype(np.int8),
        causes=letters["cause"].take(first_of_code).to_pylist(),
        origin=Origin(topic=topic, partition=to.partition, offsets=offsets, messages=reasons.dictionary.to_pylist()),
    )
    return _columns(letters), stamp


def _columns(rows: pa.Table, windows: AddedWindows | None = None) -> OutgoingColumns:
    key = rows["key"]
    if windows in ("time", "session"):
        start, end = _windows(rows)
        key = window_keys.kafka_keys(key, start, end if windows == "session" else None)
    return OutgoingColumns(
        key=_whole(key),
        value=_whole(rows["value"]),
        headers=_whole(rows["headers"]),
        timestamp=_whole(rows["timestamp"]).to_numpy(),
    )


def _windows(emissions: pa.Table) -> tuple[Any, Any]:
    return _whole(emissions["window_start"]).to_numpy(), _whole(emissions["window_end"]).to_numpy()


def _whole(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
