"""First, last and last stable offsets of a topic's partitions, and the ends of leader epochs.

`offsets` exports these together with committed offsets and the newest batch in an output topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.request_retries import (
    Deadline,
    error_for,
    is_retriable,
    timed_out,
)

TIMEOUT_S = 60.0

Leaders = Mapping[int, int] | None
"""The leaders of a topic's partitions, if the caller has just fetched them; None: they are fetched."""

_EARLIEST, _LATEST = -2, -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


class EpochEnd(NamedTuple):
    """The newest leader epoch that is not above the requested one, and its end: the offset where a newer one begins."""

    epoch: int
    end: int


def earliest(client: KafkaClient, topic: str, leaders: Leaders = None) -> dict[int, int]:
    """Return the first offset that each partition still has."""
    return _offsets(client, topic, _EARLIEST, _READ_UNCOMMITTED, leaders)


def latest(client: KafkaClient, topic: str, leaders: Leaders = None) -> dict[int, int]:
    """Return the offset after the last record of each partition, open transactions included."""
    return _offsets(client, topic, _LATEST, _READ_UNCOMMITTED, leaders)


def stable(client: KafkaClient, topic: str, leaders: Leaders = None) -> dict[int, int]:
    """Return the last stable offset of each partition: every transaction below it has ended."""
    # rule: stable-offsets/isolation
    return _offsets(client, topic, _LATEST, _READ_COMMITTED, leaders)


def epoch_ends(client: KafkaClient, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return, per partition, the offset at which the records of the given leader epoch, or of older ones, end now.

    A partition whose leader does not know it is left out.
    """
    found: dict[int, int] = {}
    for partition, epoch in epochs.items():
        if (answer := _epoch_end(client, topic, partition, epoch)) is not None:
            found[partition] = answer.end
    return found


def epoch_before(client: KafkaClient, topic: str, partition: int, offset: int, newest: int) -> int | None:
    """Return the leader epoch of the record right before the offset; only `newest` and older epochs are considered.

    None if there is no record before the offset, or if the leader does not know the epoch.
    """
    found = _epoch_end(client, topic, partition, newest)
    while found is not None:
        older = _epoch_end(client, topic, partition, found.epoch - 1) if found.epoch else None
        # rule: skip-keeps-leader-epoch/older
        if older is None or older.end < offset:
            return found.epoch
        # rule: skip-keeps-leader-epoch/before-first
        if older.end == found.end:  # the broker reports the same end for all epochs before its first one
            return None
        found = older
    return None


def _epoch_end(client: KafkaClient, topic: str, partition: int, epoch: int) -> EpochEnd | None:
    code, what, deadline = (
        0,
        f"ask for the end of a leader epoch of {topic}/{partition}",
        Deadline(TIMEOUT_S, client.clock),
    )
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = wanted.OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[wanted(topic=topic, partitions=[asked])], min_version=3, max_version=4
    )
    for _attempt in deadline.attempts():
        answer = client.send(request, client.leader(topic, partition, deadline), timeout_s=deadline.remaining_s)
        row = answer.topics[0].partitions[0]
        code = row.error_code
        if not code:
            return EpochEnd(row.leader_epoch, row.end_offset) if min(row.leader_epoch, row.end_offset) >= 0 else None
        if not is_retriable(code):
            raise error_for(code, what)
        client.forget_leaders(topic)
    raise timed_out(code, what)


def _offsets(client: KafkaClient, topic: str, timestamp: int, isolation: int, leaders: Leaders) -> dict[int, int]:
    """Return each partition's offset from its leader; retry until all leaders have responded."""
    found: dict[int, int] = {}
    code, what, deadline = 0, f"list the offsets of {topic}", Deadline(TIMEOUT_S, client.clock)
    for attempt in deadline.attempts():
        known = client.topic(topic).leaders if attempt or leaders is None else leaders
        missing = {partition: leader for partition, leader in known.items() if partition not in found}
        for node in sorted(set(missing.values()) - {-1}):
            asked = [partition for partition, leader in missing.items() if leader == node]
            for row in _ask_offsets(client, topic, node, asked, timestamp, isolation):
                if row.error_code and not is_retriable(row.error_code):
                    raise error_for(row.error_code, what)
                code = row.error_code or code
                found |= {} if row.error_code else {row.partition_index: row.offset}
        if missing.keys() <= found.keys():
            return dict(sorted(found.items()))
    raise timed_out(code, what)


def _ask_offsets(
    client: KafkaClient, topic: str, node: int, partitions: Sequence[int], timestamp: int, isolation: int
) -> Sequence[Any]:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[
            wanted(
                name=topic,
                partitions=[
                    wanted.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                    for partition in partitions
                ],
            )
        ],
        min_version=2,
        max_version=7,
    )
    return list(client.send(request, node).topics[0].partitions)
