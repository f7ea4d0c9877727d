"""The input and output of a partition's share of a batch, by source.

Everything else about a batch is the same for a service over Kafka topics and for a streaming DataFrame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.runtime.kafka.fetch import Fetched, Range, fetch, fetch_together
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.publishing.encoding import (
    Destination,
    Opened,
    PartitionOutput,
    Prepared,
    Rows,
    open_output,
    prepare_output,
)
from tidegate.runtime.task.merging import Part, merged, part_of, ranges_of, up_to_slowest
from tidegate.runtime.task.messages import InputRange, KafkaAttempt, PartitionPlan


class Worked(NamedTuple):
    """A partition's plan, and what its kernel has returned."""

    plan: PartitionPlan
    step: StepResult


class Port(Protocol):
    """The input and output of one attempt."""

    def read_together(self, plans: Sequence[PartitionPlan]) -> Mapping[int, Fetched]:
        """Read the records of several plans at once; return the partitions that were read whole."""
        ...

    def read(self, plan: PartitionPlan) -> Fetched:
        """Read the records of the plan. The result says how far they were read."""
        ...

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return the topics that are read and written, as they are now; a missing one is left out."""
        ...

    def prepare(self, worked: Sequence[Worked]) -> Prepared | None:
        """Return output that is to be published in one transaction; None if there is none."""
        ...

    def open(self, prepared: Prepared) -> Opened:
        """Send the output in one transaction, and leave that open."""
        ...


@dataclass(frozen=True, kw_only=True)
class KafkaPort:
    """The input topics and the output topics of one attempt. `deadline`: for all of its work with Kafka."""

    attempt: KafkaAttempt
    deadline: Deadline

    def read_together(self, plans: Sequence[PartitionPlan]) -> Mapping[int, Fetched]:
        """Ask for the records of all these plans at once; return the partitions that were read whole."""
        asked = [plan for plan in plans if plan.size]
        if len(asked) < 2:
            return {}
        if not self.attempt.further:
            return self._together(self.attempt.topic, [Range(p.partition, p.start, p.end, p.epoch) for p in asked])
        wanted = {plan.partition: ranges_of(plan, self.attempt.topic) for plan in asked}
        found = {topic: self._together(topic, ranges) for topic, ranges in _by_topic(wanted).items()}
        together = dict[int, Fetched]()
        for partition, ranges in wanted.items():
            read = [one for each in ranges if (one := _found(found, partition, each)) is not None]
            if len(read) == len(ranges):
                together[partition] = self._merged(partition, ranges, read)
        return together

    def read(self, plan: PartitionPlan) -> Fetched:
        """Read the committed records in the plan's ranges of offsets, up to the attempt's limit in bytes.

        Those of several input topics are merged.
        """
        if not self.attempt.further:
            return self._read(plan.partition, InputRange(self.attempt.topic, plan.start, plan.end, plan.epoch))
        wanted = ranges_of(plan, self.attempt.topic)
        return self._merged(plan.partition, wanted, [self._read(plan.partition, each) for each in wanted])

    def _together(self, topic: str, ranges: Sequence[Range]) -> Mapping[int, Fetched]:
        return fetch_together(
            self.attempt.environment.kafka(self.attempt.kafka),
            topic,
            ranges,
            max_bytes=self._max_bytes,
            deadline_s=self.deadline.remaining_s,
        )

    def _read(self, partition: int, wanted: InputRange) -> Fetched:
        if wanted.start == wanted.end:
            return _nothing_of(wanted)
        # rule: shared-deadline
        return fetch(
            self.attempt.environment.kafka(self.attempt.kafka),
            wanted.topic,
            partition,
            wanted.start,
            wanted.end,
            max_bytes=self._max_bytes,
            deadline_s=self.deadline.remaining_s,
            epoch=wanted.epoch,
        )

    @property
    def _max_bytes(self) -> int:
        """Return how much each input topic may give a partition."""
        return self.attempt.max_batch_bytes // (1 + len(self.attempt.further))

    def _merged(self, partition: int, wanted: Sequence[InputRange], found: Sequence[Fetched]) -> Fetched:
        config, clock = self.attempt.config, self.attempt.clock
        parts = [part_of(each, read, config, clock) for each, read in zip(wanted, found, strict=True)]
        return merged([self._with_epoch(partition, part) for part in up_to_slowest(parts)], config.streams)

    def _with_epoch(self, partition: int, part: Part) -> Part:
        """Return the part with the leader epoch before its end, which is only known for the end of what was fetched.

        Epochs never fall: if the first one is the last, it is that of all records between. Otherwise ask again.
        """
        start, end, read = part.range.start, part.fetched.next_offset, part.fetched
        if read.epoch == part.range.epoch or end == part.range.end:
            return part
        exact = self._read(partition, part.range._replace(end=end)) if end > start else _nothing_of(part.range)
        return part._replace(fetched=replace(read, epoch=exact.epoch))

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Ask for the input topics and the output topics, by one request."""
        attempt = self.attempt
        client = attempt.environment.kafka(attempt.kafka)
        return client.existing_topics([attempt.topic, *attempt.further, *attempt.route.outlets.topics])

    def prepare(self, worked: Sequence[Worked]) -> Prepared | None:
        """Return what is to be published; None if nothing is."""
        return prepare_output(
            [
                PartitionOutput(plan.producer, self._destination(plan), _rows(step))
                for plan, step in worked
                if plan.producer is not None
            ]
        )

    def open(self, prepared: Prepared) -> Opened:
        """Send the output in one transaction, left open for the driver, which adds input offsets and marks."""
        client = self.attempt.environment.kafka(self.attempt.kafka)
        return open_output(client, prepared, self.deadline.remaining_s)

    def _destination(self, plan: PartitionPlan) -> Destination:
        return Destination(
            route=self.attempt.route, partition=plan.partition, batch=self.attempt.batch, raised=plan.raised
        )


def _nothing_of(wanted: InputRange) -> Fetched:
    return Fetched(records=Records.from_rows([]), next_offset=wanted.start, epoch=wanted.epoch)


def _by_topic(wanted: Mapping[int, Sequence[InputRange]]) -> dict[str, list[Range]]:
    """Return the ranges that have anything to read, by topic."""
    found = defaultdict[str, list[Range]](list)
    for partition, ranges in wanted.items():
        for each in ranges:
            if each.start < each.end:
                found[each.topic].append(Range(partition, each.start, each.end, each.epoch))
    return found


def _found(found: Mapping[str, Mapping[int, Fetched]], partition: int, wanted: InputRange) -> Fetched | None:
    """Return what was read of the range; None if it did not come whole."""
    return _nothing_of(wanted) if wanted.start == wanted.end else found[wanted.topic].get(partition)


def _rows(step: StepResult) -> Rows:
    return Rows(step.emissions, step.late, step.rejected)
