"""The input and output of a partition's share of a batch, by source.

Everything else about a batch is the same for a service over Kafka topics and for a streaming DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from tidegate.runtime.task.messages import KafkaAttempt, PartitionPlan


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
    """The input topic and the output topics of one attempt. `deadline`: for all of its work with Kafka."""

    attempt: KafkaAttempt
    deadline: Deadline

    def read_together(self, plans: Sequence[PartitionPlan]) -> Mapping[int, Fetched]:
        """Ask for the records of all these plans at once; return the partitions that were read whole."""
        ranges = [Range(plan.partition, plan.start, plan.end, plan.epoch) for plan in plans if plan.start < plan.end]
        if len(ranges) < 2:
            return {}
        return fetch_together(
            self.attempt.environment.kafka(self.attempt.kafka),
            self.attempt.topic,
            ranges,
            max_bytes=self.attempt.max_batch_bytes,
            deadline_s=self.deadline.remaining_s,
        )

    def read(self, plan: PartitionPlan) -> Fetched:
        """Read the committed records in the plan's range of offsets, up to the attempt's limit in bytes."""
        if plan.start == plan.end:
            return Fetched(records=Records.from_rows([]), next_offset=plan.start, epoch=plan.epoch)
        # rule: shared-deadline
        return fetch(
            self.attempt.environment.kafka(self.attempt.kafka),
            self.attempt.topic,
            plan.partition,
            plan.start,
            plan.end,
            max_bytes=self.attempt.max_batch_bytes,
            deadline_s=self.deadline.remaining_s,
            epoch=plan.epoch,
        )

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Ask for the input topic and the output topics, by one request."""
        client = self.attempt.environment.kafka(self.attempt.kafka)
        return client.existing_topics([self.attempt.topic, *self.attempt.route.outlets.topics])

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


def _rows(step: StepResult) -> Rows:
    return Rows(step.emissions, step.late, step.rejected)
