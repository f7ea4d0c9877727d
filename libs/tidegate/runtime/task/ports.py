"""The input and output of a partition's share of a batch, by source.

Everything else about a batch is the same for a service over Kafka topics and for a streaming DataFrame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records
from tidegate.runtime.kafka.fetch import Fetched, fetch
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.publishing.encoding import Destination, Rows, open_output
from tidegate.runtime.task.messages import KafkaAttempt, PartitionPlan


class Port(Protocol):
    """The input and output of one attempt."""

    def read(self, plan: PartitionPlan) -> Fetched:
        """Read the records of the plan. The result says how far they were read."""
        ...

    def open(self, plan: PartitionPlan, step: StepResult, next_offset: int) -> Producer | None:
        """Send output that is to be published in a transaction, left open; return the partition's producer, if any."""
        ...


@dataclass(frozen=True, kw_only=True)
class KafkaPort:
    """The input topic and the output topics of one attempt. `deadline`: for all of its work with Kafka."""

    attempt: KafkaAttempt
    deadline: Deadline

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

    def open(self, plan: PartitionPlan, step: StepResult, next_offset: int) -> Producer | None:
        """Send what is to be published, the input offset and the mark in one transaction, left open for the driver.

        Return the partition's producer: with no transaction open if nothing is to be published; None if the plan has
        none.
        """
        attempt = self.attempt
        if plan.producer is None:
            return None
        destination = Destination(
            route=attempt.route,
            table_id=attempt.table_id,
            partition=plan.partition,
            batch=attempt.batch,
            next_offset=next_offset,
            raised=plan.raised,
            deadline_s=self.deadline.remaining_s,
        )
        rows = Rows(step.emissions, step.late, step.rejected)
        return open_output(attempt.environment.kafka(attempt.kafka), plan.producer, destination, rows)
