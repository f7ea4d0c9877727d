"""Local states on their way back, beside the batches.

A state that has to be rebuilt takes as long as it takes: no attempt waits for it, and no deadline runs. Partitions
whose states are ready go on meanwhile. What comes back stays, whatever becomes of the others or of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Protocol

from tidegate.runtime.messages import (
    Attempt,
    PartitionPlan,
    PartitionResult,
    Returned,
)
from tidegate.runtime.telemetry.driver_status import ConditionFile
from tidegate.runtime.threads import beside
from tidegate.state.decisions import Way

QUICK_S = 0.25
"""A round waits this long for states that are about to be ready: most are as they were."""

Prepare = Callable[[Sequence[PartitionPlan]], tuple[Attempt, Sequence[PartitionPlan]]]


class Jobs(Protocol):
    """The part of `spark.jobs.Jobs` that brings states back."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def bring_back(self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool) -> list[Returned]:
        """Bring the states back; without `rebuilds` those are left that have to be rebuilt."""
        ...

    def give_up(self) -> None:
        """Nothing is brought back any more."""
        ...


class Recovering:
    """Which partitions of an operator may be planned: those whose local states equal their newest commits."""

    def __init__(self, jobs: Jobs, condition: ConditionFile) -> None:
        self._jobs, self._condition = jobs, condition
        self._ready: set[int] = set()
        self._left: dict[int, str] = {}
        self._returned: dict[int, Returned] = {}
        self._under_way: Future[None] | None = None

    def doubt(self, partitions: Iterable[int] | None = None) -> None:
        """Nothing is known of those partitions' states, after a failed attempt; of none, after a claim."""
        self._ready = self._ready.difference(self._ready if partitions is None else partitions)

    def ready(self, plans: Sequence[PartitionPlan], prepare: Prepare) -> list[PartitionPlan]:
        """Return the plans whose states are ready; the others are brought back from now on.

        What has no commit and reads no table has nothing to be brought back. What must touch all partitions at once,
        a flush or a new configuration, waits for all of them. Raises the error of a state that cannot be brought back.
        `prepare` gives the attempt in whose name that is done, and full plans.
        """
        self._look()
        waiting = [plan for plan in plans if plan.partition not in self._ready]
        if waiting and self._under_way is None:
            self._begin(*prepare(waiting))
        ready = [plan for plan in plans if plan.partition in self._ready]
        whole = any(plan.action in ("apply", "flush") for plan in plans)
        return [] if whole and len(ready) < len(plans) else ready

    def _begin(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> None:
        """Bring the states back beside; what is quick is back when this returns."""
        empty = {plan.partition for plan in plans if plan.wanted.last is None and plan.table is None}
        self._ready = self._ready.union(empty)
        if wanted := [plan for plan in plans if plan.partition not in empty]:
            self._under_way = beside(lambda: self._bring_back(attempt, wanted))
            wait([self._under_way], QUICK_S)
            self._look()

    def told(self, result: PartitionResult) -> PartitionResult:
        """Return the result of a batch with the way that its state took before the attempt, told once."""
        returned = self._returned.pop(result.partition, None)
        if returned is None or not result.recovery.startswith(Way.GO_ON.value):
            return result
        seconds = result.seconds | {"recover": result.seconds.get("recover", 0.0) + returned.seconds}
        return replace(result, recovery=returned.how, seconds=seconds)

    def give_up(self) -> None:
        """No state is brought back any more; one that was about to is as it was before."""
        if self._under_way is not None and not self._under_way.done():
            self._jobs.give_up()

    def _look(self) -> None:
        """The condition says what is left to be rebuilt; an end of what was under way is noted, an error raised."""
        done = self._under_way
        if done is not None and done.done():
            self._under_way, self._left = None, {}
        self._condition.tell_recovering(self._left)
        if done is not None and done.done():
            done.result()

    def _bring_back(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> None:
        """First all that is quick, then what is rebuilt, as many at once as there are cores."""
        left = self._note(self._jobs.bring_back(attempt, plans, rebuilds=False))
        while left:
            self._left = left
            wave = [plan for plan in plans if plan.partition in left][: self._jobs.cores]
            self._note(self._jobs.bring_back(attempt, wave, rebuilds=True))
            left = {partition: why for partition, why in left.items() if partition not in self._ready}

    def _note(self, returned: Sequence[Returned]) -> dict[int, str]:
        """The states that are back are ready; return why the others have to be rebuilt."""
        self._returned |= {each.partition: each for each in returned if each.ready}
        self._ready = self._ready.union(each.partition for each in returned if each.ready)
        return {each.partition: each.how for each in returned if not each.ready}
