"""The environment of simulated drivers and tasks: all that they reach outside of themselves.

It has a virtual clock, one broker, no threads, a lake and machines that fail, small operators, and states that are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.operator import Operator
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import small
from tidegate.runtime.environment import Environment
from tidegate.runtime.threads import Parallel
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.recovery import PartitionLog, Recovered, recover
from tidegate.state.protocol_decisions import RecoveryMethod, Wanted
from tidegate.testing.simulation.environment.client import SimulatedArrivals, SimulatedClient
from tidegate.testing.simulation.environment.current_machine import CurrentMachine
from tidegate.testing.simulation.environment.lake import SimulatedLake
from tidegate.testing.simulation.world import World


def environment_of(world: World, lake: SimulatedLake) -> Environment:
    """Return the environment of the drivers and tasks of that world."""
    client: Any = SimulatedClient(world)

    def in_background(work: Callable[[], Any], name: str) -> Future[Any]:
        return _Later(world, work) if name == "compaction" else _done(Future(), work)

    @contextmanager
    def repeating(work: Callable[[], None], _pause_s: float, _name: str) -> Iterator[None]:
        actor = world.stage.current
        world.beside[actor] = work
        try:
            yield
        finally:
            del world.beside[actor]

    return Environment(
        clock=client.clock,
        lake=lake,
        machine=CurrentMachine(world),
        kafka=lambda _options: client,
        arrivals=lambda _options: SimulatedArrivals(world),
        operator=cache(_small_operator),
        in_background=in_background,
        repeating=repeating,
        map_parallel=map,
        map_waiting=_in_any_order(world),
        recover=_CheckedRecovery(world),
    )


def _small_operator(config: OperatorRules) -> Operator:
    """Return the operator with minimal capacities, so that states grow in small runs."""
    operator = operator_for(config)
    operator.layout = small(operator.layout)
    return operator


def _done(future: Future[Any], work: Callable[[], Any]) -> Future[Any]:
    """Do the work now and return the future with its result: in a simulation nothing runs in the background."""
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


def _in_any_order(world: World) -> Parallel:
    """Return a `map` that works on the items in an order by chance: which of some waiting threads is first is open."""

    def map_waiting(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        answers = {
            place: work(items[place]) for place in world.chance.of("waiting").sample(range(len(items)), len(items))
        }
        return (answers[place] for place in range(len(items)))

    return map_waiting


class _Later(Future[Any]):
    """A future that has its result at once, but reports it only after a few calls of `done`.

    So batches run between the request and its result.
    """

    def __init__(self, world: World, work: Callable[[], Any]) -> None:
        super().__init__()
        self._asks = world.chance.of("beside").randrange(4)
        _done(self, work)

    def done(self) -> bool:
        """Return True after a few calls."""
        self._asks -= 1
        return self._asks < 0


class _CheckedRecovery:
    """Recovers states as services do, and compares each with the oracle's. A rebuild takes `rebuild_s`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, local: LocalState, operator: Operator, wanted: Wanted, source: PartitionLog) -> Recovered:
        recovered = recover(local, operator, wanted, source)
        rebuilt = recovered.plan.method is RecoveryMethod.REBUILD and recovered.rows > 0
        begun = recovered.plan.method is RecoveryMethod.REBUILD and not rebuilt
        self._world.events["state begun" if begun else f"recovered by {recovered.plan.method.value}"] += 1
        self._world.oracles[source.log.place.name].recovered(source.partition, wanted, recovered.state)
        if rebuilt:
            self._world.clock.advance(self._world.settings.rebuild_s)
        return recovered
