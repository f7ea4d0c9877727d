"""The input and output of a partition's share of a batch, by source.

Everything else about a batch is the same for a service over Kafka topics and for a streaming DataFrame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records
from tidegate.runtime.kafka.fetch import Fetched, fetch
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.publishing.encoding import Destination, Opened, PartitionOutput, Rows, open_output
from tidegate.runtime.task.messages import KafkaAttempt, PartitionPlan


class Worked(NamedTuple):
    """A partition's plan, what its kernel has returned, and the offset that was reached."""

    plan: PartitionPlan
    step: StepResult
    next_offset: int


class Port(Protocol):
    """The input and output of one attempt."""

    def read(self, plan: PartitionPlan) -> Fetched:
        """Read the records of the plan. The result says how far they were read."""
        ...

    def open(self, worked: Sequence[Worked]) -> Opened | None:
        """Send output that is to be published in one transaction, left open; return None if there is none."""
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

    def open(self, worked: Sequence[Worked]) -> Opened | None:
        """Send what is to be published, with input offsets and marks, in one transaction, left open for the driver.

        Return None if nothing is to be published.
        """
        attempt = self.attempt
        outputs = [
            PartitionOutput(plan.producer, self._destination(plan, next_offset), _rows(step))
            for plan, step, next_offset in worked
            if plan.producer is not None
        ]
        return open_output(attempt.environment.kafka(attempt.kafka), outputs)

    def _destination(self, plan: PartitionPlan, next_offset: int) -> Destination:
        return Destination(
            route=self.attempt.route,
            table_id=self.attempt.table_id,
            partition=plan.partition,
            batch=self.attempt.batch,
            next_offset=next_offset,
            raised=plan.raised,
            deadline_s=self.deadline.remaining_s,
        )


def _rows(step: StepResult) -> Rows:
    return Rows(step.emissions, step.late, step.rejected)
