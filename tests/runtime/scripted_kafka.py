"""A broker for tests with scripted responses, which records its requests."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace as Answer
from typing import Any, Literal

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError, Unavailable
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.runtime.kafka.request_retries import Deadline

PRODUCER_ID = 7
_READ_COMMITTED, _EARLIEST = 1, -2


class ScriptedKafka:
    """In the place of a `KafkaClient`: every request succeeds, unless `codes` or `silent` have its name.

    `codes[name]` are error codes, given one after the other before the success; requests of the names in `silent` get
    no answer. An initialisation raises the epoch, and so does an end in version 2. `marks` is {partition: (offset,
    metadata)}, `topics` {name: (id, number of partitions)}, `epoch_ends` {(partition, leader epoch that is asked for):
    (the newest one up to that, its end)}.
    """

    clock = SYSTEM_CLOCK

    def __init__(self, version: Literal[1, 2] = 2, epoch: int = 0) -> None:
        self.version, self.epoch = version, epoch
        self.asked: list[Any] = []
        self.sent_together: list[list[str]] = []
        self.codes: dict[str, list[int]] = defaultdict(list)
        self.silent: set[str] = set()
        self.marks: dict[int, tuple[int, str]] = {}
        self.topics: dict[str, tuple[str, int]] = {}
        self.stable: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.offset_retention: float | None = None
        self.compacted = False
        self.epoch_ends: dict[tuple[int, int], tuple[int, int]] = {}
        self.fetched: dict[int, Callable[[int, int], tuple[int, bytes]]] = {}

    @property
    def names(self) -> list[str]:
        """The names of all requests, in order, without `Request`."""
        return [request.name.removesuffix("Request") for request in self.asked]

    def named(self, name: str) -> list[Any]:
        """The requests of that name."""
        return [request for request in self.asked if request.name == f"{name}Request"]

    def send(self, request: Any, node_id: int | None = None, *, timeout_s: float | None = None) -> Any:
        [answer] = self.send_all([(request, node_id)])
        if isinstance(answer, TidegateError):
            raise answer
        return answer

    def send_all(self, requests: Sequence[tuple[Any, int | None]], *, timeout_s: float | None = None) -> list[Any]:
        self.sent_together.append([request.name.removesuffix("Request") for request, _node in requests])
        return [self._answer(request) for request, _node in requests]

    def first_answers(self, requests: object, deadline: Deadline, interrupted: object) -> list[Any]:
        time.sleep(min(deadline.remaining_s, 0.01))
        return []

    def close(self) -> None: ...

    def existing_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        return {name: self.topic(name) for name in names}

    def topic(self, name: str) -> TopicMetadata:
        topic_id, partitions = self.topics.get(name, (f"id of {name}", 2))
        return TopicMetadata(name=name, id=topic_id, leaders=dict.fromkeys(range(partitions), 0))

    def leaders(self, topic: str) -> dict[int, int]:
        return self.topic(topic).leaders

    def leader(self, topic: str, partition: int, deadline: Any) -> int:
        return 0

    def coordinator(self, kind: int, key: str, deadline: Any) -> int:
        return 0

    def forget_leaders(self, topic: str) -> None: ...

    def forget_coordinator(self, kind: int, key: str) -> None: ...

    def transaction_version(self) -> int:
        return self.version

    def max_message_bytes(self, topic: str) -> int:
        return 2**20

    def is_compacted(self, topic: str) -> bool:
        return self.compacted

    def offset_retention_s(self, group: str) -> float | None:
        return self.offset_retention

    def probe(self, timeout_s: float | None = None) -> None: ...

    def _answer(self, request: Any) -> Any:
        self.asked.append(request)
        name = request.name.removesuffix("Request")
        if name in self.silent:
            return Unavailable(f"no answer to {name}")
        code = self.codes[name].pop(0) if self.codes[name] else 0
        return getattr(self, f"_{name}")(request, code)

    def _InitProducerId(self, _request: Any, code: int) -> Any:
        self.epoch += not code
        return Answer(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _EndTxn(self, _request: Any, code: int) -> Any:
        self.epoch += not code and self.version == 2
        return Answer(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _AddPartitionsToTxn(self, request: Any, code: int) -> Any:
        topics = request.v3_and_below_topics
        results = [Answer(partition_error_code=code) for topic in topics for _ in topic.partitions]
        return Answer(results_by_topic_v3_and_below=[Answer(results_by_partition=results)])

    def _AddOffsetsToTxn(self, _request: Any, code: int) -> Any:
        return Answer(error_code=code)

    def _Produce(self, request: Any, code: int) -> Any:
        answers = [
            Answer(
                name=topic.name,
                partition_responses=[Answer(index=p.index, error_code=code) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return Answer(responses=answers)

    def _TxnOffsetCommit(self, request: Any, code: int) -> Any:
        return Answer(topics=[Answer(partitions=[Answer(error_code=code) for _ in request.topics[0].partitions])])

    def _OffsetFetch(self, request: Any, code: int) -> Any:
        found = [(p, *self.marks.get(p, (-1, ""))) for p in request.topics[0].partition_indexes]
        rows = [Answer(partition_index=p, error_code=0, committed_offset=o, metadata=text) for p, o, text in found]
        return Answer(error_code=code, topics=[Answer(partitions=rows)])

    def _OffsetForLeaderEpoch(self, request: Any, code: int) -> Any:
        [asked] = request.topics[0].partitions
        epoch, end = self.epoch_ends.get((asked.partition, asked.leader_epoch), (-1, -1))
        return Answer(topics=[Answer(partitions=[Answer(error_code=code, leader_epoch=epoch, end_offset=end)])])

    def _Fetch(self, request: Any, code: int) -> Any:
        [asked] = request.topics[0].partitions
        end, records = self.fetched[asked.partition](asked.fetch_offset, asked.last_fetched_epoch)
        diverging = Answer(end_offset=end)
        rows = [Answer(error_code=code, aborted_transactions=[], records=records, diverging_epoch=diverging)]
        return Answer(error_code=0, responses=[Answer(partitions=rows)])

    def _ListOffsets(self, request: Any, code: int) -> Any:
        found = self.stable if request.isolation_level == _READ_COMMITTED else self.ends
        rows = [
            Answer(
                partition_index=p, error_code=code, offset=(self.starts if timestamp == _EARLIEST else found).get(p, 0)
            )
            for p, timestamp in ((one.partition_index, one.timestamp) for one in request.topics[0].partitions)
        ]
        return Answer(topics=[Answer(partitions=rows)])
