"""A Kafka cluster of one broker in memory, as requests see it.

It handles kafka-python's requests by their names; answers have the fields that Tidegate reads. Background work of a
broker happens at each `tick`: it completes ended transactions, aborts timed-out ones and carries out delayed requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace as Answer
from typing import Any

from tidegate.testing.simulation.chance import Chance
from tidegate.testing.simulation.clock import VirtualClock
from tidegate.testing.simulation.kafka.coordinator import Coordinator, Part, Transactional
from tidegate.testing.simulation.kafka.partition_log import Batch, PartitionLog
from tidegate.testing.simulation.settings import FURTHER_INPUT

NONE, OUT_OF_RANGE, UNSTABLE = 0, 1, 88
OFFSET_RETENTION_S = 60.0
"""How long a group's offsets are kept after their last commit."""
_EARLIEST, _READ_COMMITTED = -2, 1
_DELAY_ENDS, _PART_ENDS = 0.05, 0.5
"""Probability per tick that a delayed request arrives, and that one partition of a transaction becomes visible."""

Published = Callable[[str, int, Sequence[Batch]], None]
Marked = Callable[[int, str], None]


@dataclass(frozen=True, kw_only=True)
class Watchers:
    """Callbacks for everything that becomes visible to a read-committed reader."""

    published: Published
    marked: Marked


class Broker:
    """The cluster."""

    def __init__(self, partitions: dict[str, int], version: int, clock: VirtualClock, chance: Chance) -> None:
        self.logs = {(topic, p): PartitionLog() for topic, count in partitions.items() for p in range(count)}
        self.coordinator = Coordinator(version)
        self.watchers = Watchers(published=lambda *_: None, marked=lambda *_: None)
        self.timed_out = 0
        self._offsets: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._committed_s: dict[tuple[str, str, int], float] = {}
        self._clock, self._chance = clock, chance
        self._under_way: list[Any] = []

    def delay(self, request: Any) -> None:
        """Carry out the request at a later tick; nobody waits for its answer."""
        self._under_way.append(request)

    def tick(self, *, all_at_once: bool = False) -> None:
        """Do the broker's background work for the time that has passed."""
        generator = self._chance.of("broker")
        self.timed_out += self.coordinator.time_out(self._clock.monotonic())
        under_way, self._under_way = self._under_way, []
        for request in under_way:
            if all_at_once or generator.random() < _DELAY_ENDS:
                self.handle(request)
            else:
                self._under_way.append(request)
        for known in self.coordinator.ids.values():
            slowly = known.state == "ending" and not all_at_once and self._chance.happens("slow_markers")
            while known.state == "ending" and not (slowly and generator.random() < _PART_ENDS):
                self._end_a_part(known)

    def forget_an_id(self, generator: Random) -> None:
        """Expire one transactional id if it is idle."""
        if self.coordinator.ids:
            self.coordinator.forget(generator.choice(sorted(self.coordinator.ids)))

    def expire_offsets(self) -> None:
        """Drop offsets that were committed longer ago than the retention."""
        oldest = self._clock.monotonic() - OFFSET_RETENTION_S
        self._offsets = {place: offset for place, offset in self._offsets.items() if self._committed_s[place] >= oldest}

    def settled(self) -> bool:
        """Return True if no transaction is open and no request is delayed."""
        return not self._under_way and all(known.state == "idle" for known in self.coordinator.ids.values())

    def handle(self, request: Any) -> Any:
        """Carry out the request and return the broker's answer."""
        return getattr(self, f"_{request.name}")(request)

    def _end_a_part(self, known: Transactional) -> None:
        if not known.parts:
            known.state, known.offsets = "idle", {}
            return
        kind, name, partition = known.parts.pop(self._chance.of("broker").randrange(len(known.parts)))
        if kind == "output":
            found = self.logs[name, partition].mark(known.producer, known.epoch, commit=bool(known.outcome))
            if known.outcome:
                self.watchers.published(name, partition, found)
        elif known.outcome:
            for (group, topic, p), (offset, metadata) in known.offsets.items():
                self._offsets[group, topic, p] = offset, metadata
                self._committed_s[group, topic, p] = self._clock.monotonic()
                if topic != FURTHER_INPUT:  # marks travel with the first topic
                    self.watchers.marked(p, metadata)

    def _ApiVersionsRequest(self, _request: Any) -> Answer:
        return Answer()

    # ---- reading

    def _ListOffsetsRequest(self, request: Any) -> Answer:
        rows = []
        for wanted in request.topics[0].partitions:
            log = self.logs[request.topics[0].name, wanted.partition_index]
            newest = log.stable if request.isolation_level == _READ_COMMITTED else log.end
            offset = log.start if wanted.timestamp == _EARLIEST else newest
            rows.append(Answer(partition_index=wanted.partition_index, error_code=NONE, offset=offset))
        return Answer(topics=[Answer(partitions=rows)])

    def _FetchRequest(self, request: Any) -> Answer:
        [topic] = request.topics
        rows = [self._fetched(topic.topic, wanted) for wanted in topic.partitions]
        return Answer(error_code=NONE, responses=[Answer(partitions=rows)])

    def _fetched(self, topic: str, wanted: Any) -> Answer:
        log, partition = self.logs[topic, wanted.partition], wanted.partition
        if wanted.fetch_offset < log.start:
            return Answer(partition_index=partition, error_code=OUT_OF_RANGE, aborted_transactions=[], records=b"")
        records, aborted = log.fetch(wanted.fetch_offset, one=self._chance.happens("short_fetch"))
        return Answer(
            partition_index=partition,
            error_code=NONE,
            aborted_transactions=[Answer(producer_id=producer, first_offset=first) for producer, first in aborted],
            records=records,
            diverging_epoch=Answer(end_offset=_diverging(log, wanted.fetch_offset, wanted.last_fetched_epoch)),
        )

    def _OffsetForLeaderEpochRequest(self, request: Any) -> Answer:
        [asked] = request.topics[0].partitions
        epoch, end = self.logs[request.topics[0].topic, asked.partition].end_of(asked.leader_epoch)
        return Answer(topics=[Answer(partitions=[Answer(error_code=NONE, leader_epoch=epoch, end_offset=end)])])

    def _OffsetFetchRequest(self, request: Any) -> Answer:
        [wanted] = request.topics
        rows = [self._committed(request, wanted.name, partition) for partition in wanted.partition_indexes]
        return Answer(error_code=NONE, topics=[Answer(partitions=rows)])

    def _committed(self, request: Any, topic: str, partition: int) -> Answer:
        place = (request.group_id, topic, partition)
        offset, metadata = self._offsets.get(place, (-1, ""))
        pending = request.require_stable and any(place in known.offsets for known in self.coordinator.ids.values())
        code = UNSTABLE if pending else NONE
        return Answer(partition_index=partition, error_code=code, committed_offset=offset, metadata=metadata)

    # ---- transactions

    def _InitProducerIdRequest(self, request: Any) -> Answer:
        code, producer, epoch = self.coordinator.initialise(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.transaction_timeout_ms / 1_000,
        )
        return Answer(error_code=code, producer_id=producer, producer_epoch=epoch)

    def _AddPartitionsToTxnRequest(self, request: Any) -> Answer:
        known = (
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        parts = [("output", topic.name, p) for topic in request.v3_and_below_topics for p in topic.partitions]
        rows = [Answer(partition_error_code=self._join(*known, part, announce=True)) for part in parts]
        return Answer(results_by_topic_v3_and_below=[Answer(results_by_partition=rows)])

    def _AddOffsetsToTxnRequest(self, request: Any) -> Answer:
        part = ("offsets", request.group_id, -1)
        code = self._join(request.transactional_id, request.producer_id, request.producer_epoch, part, announce=True)
        return Answer(error_code=code)

    def _ProduceRequest(self, request: Any) -> Answer:
        answers = []
        for topic in request.topic_data:
            rows = [self._produced(request.transactional_id, topic.name, each) for each in topic.partition_data]
            answers.append(Answer(name=topic.name, partition_responses=rows))
        return Answer(responses=answers)

    def _produced(self, transactional_id: str, topic: str, partition: Any) -> Answer:
        data = bytes(partition.records)
        producer, epoch = (int.from_bytes(data[at : at + size], "big") for at, size in ((43, 8), (51, 2)))
        code = self._join(transactional_id, producer, epoch, ("output", topic, partition.index), announce=False)
        if not code:
            code = self.logs[topic, partition.index].append(data)
        return Answer(index=partition.index, error_code=code)

    def _TxnOffsetCommitRequest(self, request: Any) -> Answer:
        part = ("offsets", request.group_id, -1)
        code = self._join(request.transactional_id, request.producer_id, request.producer_epoch, part, announce=False)
        if not code:
            known = self.coordinator.ids[request.transactional_id]
            for topic in request.topics:
                for row in topic.partitions:
                    place = (request.group_id, topic.name, row.partition_index)
                    known.offsets[place] = (row.committed_offset, row.committed_metadata)
        answers = [[Answer(error_code=code) for _ in topic.partitions] for topic in request.topics]
        return Answer(topics=[Answer(partitions=rows) for rows in answers])

    def _EndTxnRequest(self, request: Any) -> Answer:
        code, producer, epoch = self.coordinator.end(
            request.transactional_id, request.producer_id, request.producer_epoch, commit=request.committed
        )
        return Answer(error_code=code, producer_id=producer, producer_epoch=epoch)

    def _join(self, name: str, producer: int, epoch: int, part: Part, *, announce: bool) -> int:
        return self.coordinator.join(name, producer, epoch, part, self._clock.monotonic(), announce=announce)


def _diverging(log: PartitionLog, offset: int, epoch: int) -> int:
    """Return from which offset on the log differs from what was read before `offset` in that leader epoch.

    -1 if it does not differ.
    """
    found, end = log.end_of(epoch) if epoch >= 0 else (epoch, offset)
    return end if found < epoch or end < offset else -1
