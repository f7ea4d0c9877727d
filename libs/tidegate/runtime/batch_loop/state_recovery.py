"""Recovery of local states in the background, while batches continue.

A rebuild may take any time: no attempt waits for it, and no deadline applies. Partitions whose states are ready
continue meanwhile. A recovered state is kept, even if the recovery of others fails or the driver ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Protocol

from tidegate.runtime.environment import Background
from tidegate.runtime.task.messages import (
    Attempt,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
)
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.runtime.threads import in_background
from tidegate.state.protocol_decisions import RecoveryMethod

QUICK_S = 0.25
"""How long a round waits for quick recoveries: most states only have to be checked."""

Prepare = Callable[[Sequence[PartitionPlan]], tuple[Attempt, Sequence[PartitionPlan]]]


class Jobs(Protocol):
    """The part of `task.jobs.Jobs` that recovers local states."""

    @property
    def cores(self) -> int:
        """Return the number of tasks that run at once."""
        ...

    def recover_states(
        self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
    ) -> list[RecoveryOutcome]:
        """Recover the states; without `rebuilds`, leave those that have to be rebuilt as they are."""
        ...

    def give_up(self) -> None:
        """Cancel the recoveries under way."""
        ...


class Recovering:
    """The recovery of an operator's local states. A partition is ready when its state equals its newest commit."""

    def __init__(self, jobs: Jobs, condition: DriverStatusFile, in_background: Background = in_background) -> None:
        self._jobs, self._condition, self._in_background = jobs, condition, in_background
        self._ready: set[int] = set()
        self._left: dict[int, str] = {}
        self._returned: dict[int, RecoveryOutcome] = {}
        self._under_way: Future[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether states are being recovered."""
        return self._under_way is not None

    def mark_unready(self, partitions: Iterable[int] | None = None) -> None:
        """Count the partitions' states as not ready: after a failed attempt its own; after a claim all (None)."""
        self._ready = self._ready.difference(self._ready if partitions is None else partitions)

    def ready(self, plans: Sequence[PartitionPlan], prepare: Prepare) -> list[PartitionPlan]:
        """Return the plans whose local states are ready, and start to recover the others in the background.

        A partition without a commit that reads no table has nothing to recover. A flush and a new configuration need
        all partitions at once: return no plan until all states are ready. Raise the error of a state that cannot be
        recovered. `prepare` returns the attempt under which states are recovered, and complete plans.
        """
        self._report_progress()
        waiting = [plan for plan in plans if plan.partition not in self._ready]
        if waiting and self._under_way is None:
            self._begin(*prepare(waiting))
        ready = [plan for plan in plans if plan.partition in self._ready]
        whole = any(plan.action in ("apply", "flush") for plan in plans)
        # rule: recover-before-attempt/whole
        return [] if whole and len(ready) < len(plans) else ready

    def _begin(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> None:
        """Start the recoveries in the background, and wait up to QUICK_S for those that are quick."""
        empty = {plan.partition for plan in plans if plan.wanted.last is None and not plan.tables}
        self._ready = self._ready.union(empty)
        if wanted := [plan for plan in plans if plan.partition not in empty]:
            self._under_way = self._in_background(lambda: self._recover(attempt, wanted), "recovery")
            wait([self._under_way], QUICK_S)
            self._report_progress()

    def with_recovery(self, result: PartitionResult) -> PartitionResult:
        """Return a batch's result completed by how its state was recovered before the attempt, reported once."""
        returned = self._returned.pop(result.partition, None)
        if returned is None or not _goes_on(result):
            return result
        seconds = result.seconds | {"recover": result.seconds.get("recover", 0.0) + returned.seconds}
        return replace(result, recovery=returned.plan, seconds=seconds)

    def give_up(self) -> None:
        """Cancel the recoveries under way; their states stay as they were before."""
        if self._under_way is not None and not self._under_way.done():
            self._jobs.give_up()

    def _report_progress(self) -> None:
        """Write to the status what is left to be rebuilt. If the recoveries have ended, raise their error, if any."""
        done = self._under_way
        if done is not None and done.done():
            self._under_way, self._left = None, {}
        self._condition.write_recovering(self._left)
        if done is not None and done.done():
            done.result()

    def _recover(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> None:
        """Recover first all that is quick, then rebuild the others, as many at once as there are cores."""
        left = self._note(self._jobs.recover_states(attempt, plans, rebuilds=False))
        while left:
            self._left = left
            wave = [plan for plan in plans if plan.partition in left][: self._jobs.cores]
            self._note(self._jobs.recover_states(attempt, wave, rebuilds=True))
            left = {partition: why for partition, why in left.items() if partition not in self._ready}

    def _note(self, returned: Sequence[RecoveryOutcome]) -> dict[int, str]:
        """Count the recovered states as ready; return for the other partitions why they have to be rebuilt."""
        self._returned |= {each.partition: each for each in returned if each.ready}
        self._ready = self._ready.union(each.partition for each in returned if each.ready)
        return {each.partition: each.plan.reason for each in returned if not each.ready}


def _goes_on(result: PartitionResult) -> bool:
    """Return whether the attempt itself found the local state ready."""
    return result.recovery is not None and result.recovery.method is RecoveryMethod.GO_ON
