"""Lists the open transactions of a topic, which hold back its last stable offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka import TopicPartition
from kafka.errors import KafkaError

from tidegate.contracts.errors import TidegateError
from tidegate.runtime.kafka.topics import admin_client


@dataclass(frozen=True, kw_only=True)
class OpenTransaction:
    """A transaction that has not ended. `transactional_id` is empty if the cluster does not report it."""

    producer_id: int
    first_offset: int
    transactional_id: str


def open_transactions(
    options: Mapping[str, str], topic: str, partitions: Sequence[int]
) -> dict[int, list[OpenTransaction]]:
    """Return the open transactions per partition, by first offset: the first one holds back the last stable offset.

    Returns an empty dict if the request fails, as when this client is not authorized.
    """
    try:
        return _open_transactions(options, topic, partitions)
    except (TidegateError, KafkaError):
        return {}


def _open_transactions(
    options: Mapping[str, str], topic: str, partitions: Sequence[int]
) -> dict[int, list[OpenTransaction]]:
    with admin_client(options, topic) as admin:
        found = admin.describe_producers([TopicPartition(topic, partition) for partition in partitions])
        listed = admin.list_transactions()
    names = {each.producer_id: each.transactional_id for some in listed.values() for each in some}
    return {place.partition: _open_of(state.active_producers, names) for place, state in found.items()}


def _open_of(producers: Sequence[object], names: Mapping[int, str]) -> list[OpenTransaction]:
    found = [
        OpenTransaction(
            producer_id=producer.producer_id,  # type: ignore[attr-defined]
            first_offset=producer.current_transaction_start_offset,  # type: ignore[attr-defined]
            transactional_id=names.get(producer.producer_id, ""),  # type: ignore[attr-defined]
        )
        for producer in producers
        if producer.current_transaction_start_offset >= 0  # type: ignore[attr-defined]
    ]
    return sorted(found, key=lambda each: each.first_offset)
