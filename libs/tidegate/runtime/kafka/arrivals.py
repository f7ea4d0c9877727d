"""Waits until records arrive in topics, by fetches that a broker answers as soon as there is something to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from kafka.protocol.consumer import FetchRequest

from tidegate.contracts.errors import TidegateError
from tidegate.runtime.kafka import client
from tidegate.runtime.kafka.fetch import fetch_request
from tidegate.runtime.kafka.request_retries import Deadline

_SMALLEST_BYTES = 1
"""Limit of a response, which then has one record batch: only its arrival counts."""
_AFTER_ERROR_S = 0.2


class Position(NamedTuple):
    """Where records of a partition are awaited: the broker that leads it, and the offset from which on they count."""

    leader: int
    offset: int


Positions = Mapping[str, Mapping[int, Position]]
"""By topic, where records of its partitions are awaited."""


class Arrivals(Protocol):
    """Waits until records arrive in topics."""

    def wait(self, positions: Positions, *, longest_s: float, interrupted: Callable[[], bool]) -> None:
        """Wait until one of the partitions may have a stable record at its position or above.

        Return earlier if `interrupted()`, which is called four times a second, or when `longest_s` has passed.
        Errors of brokers are left to the caller's next request.
        """
        ...

    def close(self) -> None:
        """Close the connections; the next wait connects again."""
        ...


class LongPolls:
    """Arrivals by long polls: the broker answers a fetch once there is something, or when the time is up.

    They have connections of their own: on the caller's connections an answer that is still due would delay the next.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._client = client.KafkaClient(options)

    def wait(self, positions: Positions, *, longest_s: float, interrupted: Callable[[], bool]) -> None:
        """Implement Arrivals."""
        deadline = Deadline(longest_s, self._client.clock)
        try:
            answers = self._client.first_answers(_fetches(positions, longest_s), deadline, interrupted)
            failed = any(map(_failed, answers))
        except TidegateError:
            failed = True
        if failed:
            self._pause(Deadline(min(_AFTER_ERROR_S, deadline.remaining_s), self._client.clock), interrupted)

    def close(self) -> None:
        """Implement Arrivals."""
        self._client.close()

    def _pause(self, deadline: Deadline, interrupted: Callable[[], bool]) -> None:
        while deadline.remaining_s and not interrupted():
            self._client.clock.sleep(min(deadline.remaining_s, client.INTERRUPTED_EVERY_S))


def _fetches(positions: Positions, longest_s: float) -> dict[int, Any]:
    """Return a fetch for each broker that leads some of the partitions."""
    wanted: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for topic, own in positions.items():
        for partition, position in own.items():
            wanted[position.leader][topic].append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=partition, fetch_offset=position.offset, partition_max_bytes=_SMALLEST_BYTES
                )
            )
    return {
        leader: fetch_request(asked, max_bytes=_SMALLEST_BYTES, max_wait_ms=int(longest_s * 1_000))
        for leader, asked in wanted.items()
    }


def _failed(answer: Any) -> bool:
    """Return True if the fetch, or a partition of it, has an error."""
    if isinstance(answer, TidegateError) or answer.error_code:
        return True
    return any(partition.error_code for topic in answer.responses for partition in topic.partitions)
