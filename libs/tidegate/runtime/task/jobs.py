"""What a driver has done elsewhere: by Spark jobs, or by workers that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tidegate.contracts.config.rules import OperatorRules
from tidegate.runtime.task.messages import (
    Attempt,
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
)
from tidegate.state.lake.port import Lake


class Jobs(Protocol):
    """Runs the work of one driver where the local states are."""

    @property
    def cores(self) -> int:
        """Return how many tasks run at once."""
        ...

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
        """Run the plans; return the results, and at least one failure if not all have succeeded."""
        ...

    def recover_states(
        self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
    ) -> list[RecoveryOutcome]:
        """Recover the states; without `rebuilds`, leave those that have to be rebuilt as they are."""
        ...

    def give_up(self) -> None:
        """Cancel the recoveries under way."""
        ...

    def warm_up(self, config: OperatorRules) -> None:
        """Import and compile what a batch of the operator needs."""
        ...

    def check_lake(self, log: Lake) -> None:
        """Raise EngineError unless driver and executors share the lake of the log."""
        ...

    def make_durable(self, attempt: Attempt) -> None:
        """Fsync the operator's local states on every machine that has some."""
        ...

    def each(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """Run the work on each item; return the results in order."""
        ...

    def each_sequentially(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """Run the work on one item at a time, and never in a batch's way; return the results in order."""
        ...
