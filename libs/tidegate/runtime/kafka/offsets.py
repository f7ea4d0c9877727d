"""First and last offsets of partitions, committed offsets of groups, and the newest batch in an output topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# rule: group-in-transactions
from kafka.protocol.consumer import OffsetFetchRequest

from tidegate.contracts.errors import OffsetsGone, Unavailable
from tidegate.contracts.naming import HEADER_BATCH, HEADER_OPERATOR, HEADER_PARTITION
from tidegate.contracts.records import Records
from tidegate.kernels.record_format.record_batch import decode_headers
from tidegate.runtime.kafka.client import GROUP, KafkaClient
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.kafka.positions import earliest, epoch_before, epoch_ends, latest, stable
from tidegate.runtime.kafka.request_retries import (
    Deadline,
    error_for,
    is_retriable,
    timed_out,
)

__all__ = [
    "CommittedOffset",
    "committed_offsets",
    "earliest",
    "epoch_before",
    "epoch_ends",
    "latest",
    "newest_batch_header",
    "stable",
]

TIMEOUT_S = 60.0

_FIRST_STEP, _LARGEST_STEP = 2**10, 2**18
_STEP_BYTES = 2**22


@dataclass(frozen=True, kw_only=True)
class CommittedOffset:
    """A group's committed offset of a partition, and the metadata committed with it."""

    offset: int
    metadata: str


def committed_offsets(
    client: KafkaClient, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, CommittedOffset | None]:
    """Return the group's committed offset per partition; None for a partition without one.

    Waits until the transactions that are committing offsets have ended. Raises Unavailable if that takes too long.
    """
    code, what, deadline = 0, f"read the offsets of group {group}", Deadline(TIMEOUT_S, client.clock)
    # rule: stable-marks
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))],
        require_stable=True,
        min_version=7,
        max_version=7,
    )
    for _attempt in deadline.attempts():
        answer = client.send(request, client.coordinator(GROUP, group, deadline), timeout_s=deadline.remaining_s)
        found = [row for part in answer.topics for row in part.partitions]
        code = next((code for code in [answer.error_code, *(row.error_code for row in found)] if code), 0)
        if not code:
            return {row.partition_index: _committed(row) for row in found}
        if not is_retriable(code):
            raise error_for(code, what)
        client.forget_coordinator(GROUP, group)
    raise timed_out(code, what)


def newest_batch_header(
    client: KafkaClient, topic: str, partition: int, operator: str, of_input: int | None = None
) -> int | None:
    """Return the batch number of the operator's newest committed record in the partition; None if there is no record.

    `of_input`: consider those records alone that were made of this partition of the input, as a header says.

    Reads backwards in growing steps, each of bounded memory, down to the partition's first offset, which may increase
    meanwhile. Raises Unavailable if other transactions stay open there: they may hide a record of the operator.
    """
    own = {HEADER_OPERATOR.encode(): operator.encode()}
    if of_input is not None:
        own[HEADER_PARTITION.encode()] = b"%d" % of_input
    first, end = earliest(client, topic)[partition], _ended(client, topic, partition)
    step = _FIRST_STEP
    while end > first:
        start = max(first, end - step)
        try:
            found = _newest_between(client, topic, partition, start, end, own)
        except OffsetsGone:
            first = earliest(client, topic)[partition]
            continue
        if found is not None:
            return found
        end, step = start, min(4 * step, _LARGEST_STEP)
    return None


def _ended(client: KafkaClient, topic: str, partition: int) -> int:
    """Wait until no transaction is open below the partition's end, and return that end."""
    end, deadline = latest(client, topic)[partition], Deadline(TIMEOUT_S, client.clock)
    for _attempt in deadline.attempts():
        # rule: absent-mark-nothing-open
        if stable(client, topic)[partition] >= end:
            return end
    raise Unavailable(
        f"transactions of others are open in {topic}/{partition}, which may hide what was published before",
        value=f"last stable offset below {end}",
        remedy="wait until they end, or abort those that hang with Kafka's kafka-transactions.sh",
    )


def _newest_between(
    client: KafkaClient, topic: str, partition: int, start: int, end: int, own: Mapping[bytes, bytes]
) -> int | None:
    newest = None
    while start < end:
        read = fetch(client, topic, partition, start, end, max_bytes=_STEP_BYTES, deadline_s=TIMEOUT_S)
        found = _newest_of(read.records, own)
        newest, start = newest if found is None else found, read.next_offset
    return newest


def _newest_of(records: Records, own: Mapping[bytes, bytes]) -> int | None:
    """Return the batch of the newest record that has these headers of its own; None if none has."""
    for index in np.flatnonzero(records.headers_length)[::-1].tolist():
        [row] = records.slice(index, index + 1).rows()
        headers = dict(decode_headers(row.headers))
        # rule: own-headers
        if all(headers.get(name) == value for name, value in own.items()):
            return int(headers[HEADER_BATCH.encode()] or b"")
    return None


def _committed(row: Any) -> CommittedOffset | None:
    return (
        None if row.committed_offset < 0 else CommittedOffset(offset=row.committed_offset, metadata=row.metadata or "")
    )
