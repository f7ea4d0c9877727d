"""Fetches the committed records of a range of offsets, in columns.

A fetch request names the topic, uses no fetch session and goes to the leader only. Record batches older than magic 2,
which only topics written before Kafka 0.11 contain, go through kafka-python's own parser, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from kafka.errors import CorruptRecordError, OffsetOutOfRangeError
from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from tidegate.contracts.batch_metadata import Reading
from tidegate.contracts.errors import (
    EngineError,
    InputTruncated,
    OffsetsGone,
    StateError,
    TidegateError,
    Unavailable,
)
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Records, Row
from tidegate.kernels.record_format.compression import LARGEST_BATCH_BYTES
from tidegate.kernels.record_format.record_batch import Decoded, decode
from tidegate.kernels.record_format.record_frames import MAGIC, frames
from tidegate.runtime.kafka.client import NO_LEADER, KafkaClient
from tidegate.runtime.kafka.positions import earliest
from tidegate.runtime.kafka.request_retries import Deadline, error_for, is_retriable

NO_EPOCH = -1
_READ_COMMITTED = 1
_EPOCH_AT = 12
"""Position of the leader epoch in a record batch of magic 2: after base offset and size."""
_MAX_WAIT_MS = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class Fetched:
    """The records of a range as far as it was read, and the offset at which to continue (`next_offset`).

    `epoch`: the leader epoch of the record batch before that offset; -1 if unknown. Of several input topics, these are
    of the first one, as is `reached`, the largest timestamp read of it; `further` is how far the others were read.
    """

    records: Records
    next_offset: int
    epoch: int = NO_EPOCH
    reached: int = NO_STREAM_TIME
    further: Mapping[str, Reading] = field(default_factory=dict)

    def until(self, offset: int) -> Fetched:
        """Return the same as if only the records before that offset had been read."""
        return replace(self, next_offset=offset)

    def with_origins(self, rows: pa.Table, raised: int) -> pa.Table:
        """Return late or rejected rows as they are: their offsets say where their records were read."""
        return rows


class Range(NamedTuple):
    """The offsets of a partition from `start` to before `end`; `epoch` is that of the record before; -1 if unknown."""

    partition: int
    start: int
    end: int
    epoch: int = NO_EPOCH


def fetch_together(
    client: KafkaClient, topic: str, ranges: Sequence[Range], *, max_bytes: int, deadline_s: float
) -> dict[int, Fetched]:
    """Ask each leader once for all of its ranges; return the partitions whose ranges came whole, with their records.

    `max_bytes`: for all of them. Nothing is retried: `fetch` reads the other partitions, and reports their errors.
    Raise EngineError if no broker can be reached, or if a record batch is damaged.
    """
    deadline, share = Deadline(deadline_s, client.clock), max_bytes // max(1, len(ranges))
    by_leader = _by_leader(client, topic, ranges)
    requests = [
        (fetch_request({topic: [_asked(each, share) for each in own]}, max_bytes=max_bytes, max_wait_ms=0), leader)
        for leader, own in by_leader.items()
    ]
    answers = client.send_all(requests, timeout_s=deadline.remaining_s) if requests else []
    wanted = {each.partition: each for each in ranges}
    found: dict[int, Fetched] = {}
    for answer in answers:
        if isinstance(answer, TidegateError) or answer.error_code:
            continue
        for row in answer.responses[0].partitions:
            whole = _whole(topic, wanted[row.partition_index], row)
            found |= {} if whole is None else {row.partition_index: whole}
    return found


def _by_leader(client: KafkaClient, topic: str, ranges: Sequence[Range]) -> dict[int, list[Range]]:
    """Return the ranges by the leaders of their partitions, without those that have none now."""
    found = defaultdict[int, list[Range]](list)
    try:
        leaders = client.leaders(topic)
    except TidegateError:  # `fetch` reports it, if it stays so
        return found
    for each in ranges:
        if leaders.get(each.partition, NO_LEADER) != NO_LEADER:
            found[leaders[each.partition]].append(each)
    return found


def _whole(topic: str, wanted: Range, answer: Any) -> Fetched | None:
    """Return the records of a partition's answer; None unless they are those of the whole range."""
    if answer.error_code or _diverging(answer) is not None:
        return None
    read = _decoded(topic, wanted.partition, answer, wanted.start, wanted.end)
    # rule: read-together-whole
    if read.next_offset < wanted.end:
        return None
    epoch = _epoch_before(answer.records, read.next_offset, wanted.epoch)
    return Fetched(records=read.records, next_offset=read.next_offset, epoch=epoch)


def _asked(wanted: Range, max_bytes: int) -> Any:
    # rule: truncated-input/asked
    return FetchRequest.FetchTopic.FetchPartition(
        partition=wanted.partition,
        fetch_offset=wanted.start,
        last_fetched_epoch=wanted.epoch,
        partition_max_bytes=max_bytes,
    )


def fetch(
    client: KafkaClient,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    max_bytes: int,
    deadline_s: float,
    epoch: int = NO_EPOCH,
) -> Fetched:
    """Return the committed records with start <= offset < end, in one buffer.

    Sends fetches until `next_offset` is `end`, or until the batches read take more than half of `max_bytes`, or more
    than LARGEST_BATCH_BYTES uncompressed. It stops there because another call costs less than copying a large response
    to append a second one. Retries until the deadline, in seconds from the call.

    Raises EngineError when the deadline has passed; StateError when the partition does not have offset `start`;
    InputTruncated when the records before `start`, read in leader epoch `epoch`, are no longer in the partition.
    """
    parts: list[Records] = []
    position, held, uncompressed, deadline = start, 0, 0, Deadline(deadline_s, client.clock)
    while position < end and held <= max_bytes // 2 and uncompressed <= LARGEST_BATCH_BYTES:
        read, epoch = _read_some(client, topic, partition, position, end, epoch, max_bytes - held, deadline)
        parts += [read.records] if len(read.records) else []
        position, held = read.next_offset, held + read.bytes_used
        uncompressed += len(read.records.data)
    return Fetched(records=concatenate(parts), next_offset=position, epoch=epoch)


def concatenate(parts: Sequence[Records]) -> Records:
    """Return the records of all parts in order, in one buffer; a single part is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Records.from_rows([])
    shifts = np.cumsum([0] + [len(part.data) for part in parts[:-1]])

    def column(name: str, *, is_position: bool = False) -> np.ndarray:
        return np.concatenate(
            [getattr(part, name) + (shift if is_position else 0) for part, shift in zip(parts, shifts, strict=True)]
        )

    return Records(
        data=np.concatenate([part.data for part in parts]),
        offset=column("offset"),
        timestamp=column("timestamp"),
        key_start=column("key_start", is_position=True),
        key_length=column("key_length"),
        value_start=column("value_start", is_position=True),
        value_length=column("value_length"),
        headers_start=column("headers_start", is_position=True),
        headers_length=column("headers_length"),
        unreadable=np.concatenate([_unreadable(part) for part in parts]),
    )


def _unreadable(part: Records) -> np.ndarray:
    return np.zeros(len(part), np.int8) if part.unreadable is None else part.unreadable


def decode_any(raw: bytes, start: int, end: int, aborted: Sequence[tuple[int, int]]) -> Decoded:
    """Decode record batches as `decode` does, of every magic."""
    found = frames(np.frombuffer(raw, np.uint8))
    if not len(found.magic) or found.magic.min() == MAGIC:
        return decode(raw, start, end, aborted)
    parts = [
        decode(run, start, end, aborted) if magic == MAGIC else _decode_old(run, start, end)
        for magic, run in _runs(raw, found.start.tolist(), found.end.tolist(), found.magic.tolist())
    ]
    return Decoded(
        records=concatenate([part.records for part in parts if len(part.records)]),
        next_offset=parts[-1].next_offset,
        bytes_used=int(found.end[-1]),
    )


def _runs(raw: bytes, starts: list[int], ends: list[int], magics: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield each run of neighbouring batches of the same magic: the magic, and the bytes of the batches."""
    first = 0
    for batch in range(1, len(magics) + 1):
        if batch == len(magics) or magics[batch] != magics[first]:
            yield magics[first], raw[starts[first] : ends[batch - 1]]
            first = batch


def _decode_old(raw: bytes, start: int, end: int) -> Decoded:
    rows, next_offset = [], start
    try:
        for batch in MemoryRecords(raw):
            if not batch.validate_crc():
                raise CorruptRecordError("its checksum is wrong")
            for record in batch:
                next_offset = record.offset + 1
                if start <= record.offset < end:
                    rows.append(Row(record.key, record.value, _timestamp(record), record.offset))
    except CorruptRecordError as cause:
        raise EngineError(f"a record batch is damaged: {cause}", value=f"behind offset {next_offset}") from cause
    return Decoded(records=Records.from_rows(rows), next_offset=min(max(next_offset, start), end), bytes_used=len(raw))


def _timestamp(record: Any) -> int:
    """Return the record's timestamp; -1, as in Kafka, for magic 0, which has none."""
    return -1 if record.timestamp is None else int(record.timestamp)


def _read_some(
    client: KafkaClient,
    topic: str,
    partition: int,
    position: int,
    end: int,
    epoch: int,
    wanted: int,
    deadline: Deadline,
) -> tuple[Decoded, int]:
    """Return the records of at least one batch from the position on, and the leader epoch of the last batch."""
    last_error: EngineError | None = None
    for _attempt in deadline.attempts():
        try:
            answer = _fetch_once(client, topic, partition, position, epoch, wanted, deadline)
        except EngineError as error:
            # rule: fetch-retries
            last_error = error
            continue
        if answer.error_code == OffsetOutOfRangeError.errno:
            raise _out_of_range_error(topic, partition, position, earliest(client, topic)[partition])
        if answer.error_code and not is_retriable(answer.error_code):
            raise error_for(answer.error_code, f"fetch {topic}/{partition} from offset {position}")
        if answer.error_code:
            client.forget_leaders(topic)
            continue
        # rule: truncated-input/answer
        if (truncated := _diverging(answer)) is not None:
            raise InputTruncated(
                f"{topic}/{partition} has lost records after they were read",
                value=f"offsets {truncated} to {position - 1}, of leader epoch {epoch}",
                remedy="accept the loss with `tidegate skip`; see unclean.leader.election.enable",
            )
        read = _decoded(topic, partition, answer, position, end)
        if read.next_offset > position:
            return read, _epoch_before(answer.records, read.next_offset, epoch)
    raise Unavailable(
        f"offsets {position} to {end} of {topic}/{partition} did not arrive in time",
        value=last_error,
        remedy="check the brokers; Tidegate retries",
    ) from last_error


def _diverging(answer: Any) -> int | None:
    """Return the offset from which the partition differs from what was read.

    None if it does not differ, or if the broker is too old to report it.
    """
    diverging = getattr(answer, "diverging_epoch", None)
    return None if diverging is None or diverging.end_offset < 0 else int(diverging.end_offset)


def _epoch_before(raw: bytes, offset: int, before: int) -> int:
    """Return the leader epoch of the last record batch that begins before the offset; `before` if none has one."""
    found = frames(np.frombuffer(raw, np.uint8))
    # rule: truncated-input/epoch
    starts = found.start[(found.base_offset < offset) & (found.magic == MAGIC)]
    if not len(starts):
        return before
    at = int(starts[-1]) + _EPOCH_AT
    return int.from_bytes(raw[at : at + 4], "big", signed=True)


def _fetch_once(
    client: KafkaClient, topic: str, partition: int, position: int, epoch: int, wanted: int, deadline: Deadline
) -> Any:
    """Send one fetch to the leader and return its response for the partition."""
    asked = _asked(Range(partition, position, position, epoch), wanted)
    request = fetch_request({topic: [asked]}, max_bytes=wanted, max_wait_ms=_MAX_WAIT_MS)
    answer = client.send(request, client.leader(topic, partition, deadline), timeout_s=deadline.remaining_s)
    if answer.error_code:
        raise error_for(answer.error_code, f"fetch {topic}/{partition}")
    return answer.responses[0].partitions[0]


def fetch_request(wanted: Mapping[str, Sequence[Any]], *, max_bytes: int, max_wait_ms: int) -> Any:
    """Return a fetch of committed records of these partitions, by topic.

    The leader answers once there is one, or when the time is up.
    """
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=_READ_COMMITTED,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=asked) for topic, asked in wanted.items()],
        forgotten_topics_data=[],
        min_version=4,
        max_version=12,
    )


def _decoded(topic: str, partition: int, answer: Any, position: int, end: int) -> Decoded:
    aborted = [(transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions or []]
    try:
        return decode_any(answer.records or b"", position, end, aborted)
    except EngineError as error:
        raise EngineError(f"{topic}/{partition}: {error.problem}", value=error.value, remedy=error.remedy) from error


def _out_of_range_error(topic: str, partition: int, position: int, log_start: int) -> StateError:
    if log_start > position:
        return OffsetsGone(
            f"{topic}/{partition} no longer has offset {position}",
            value=f"its first offset is {log_start}: the records between were deleted before they were read",
            remedy="accept the loss with `tidegate skip`; give input topics enough retention",
        )
    return StateError(
        f"{topic}/{partition} ends before offset {position}",
        value="the topic was re-created, or lost its newest records",
        remedy="restore the topic, or start a new operator on what is left",
    )
