"""The environment of a driver and its tasks: what they reach the clock, Kafka, threads and operators through.

A service runs in `REAL`; the simulation passes an environment of its own. A driver hands its environment to its tasks
with each attempt, so that the real one is made of what a worker process can import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.operator import Operator
from tidegate.operators.registry import operator_for
from tidegate.runtime.kafka.arrivals import Arrivals, LongPolls
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.threads import Parallel, in_background, map_parallel, map_waiting, repeating
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.machine import THIS_MACHINE, Machine
from tidegate.state.local.recovery import PartitionLog, Recovered, recover
from tidegate.state.protocol_decisions import Wanted

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Background(Protocol):
    """Starts some work in the background and returns its future. `name` says what the work is."""

    def __call__(self, work: Callable[[], Answer], name: str, /) -> Future[Answer]: ...


class Repeating(Protocol):
    """Calls some work every `pause_s` seconds, beside the block. `name` says what the work is."""

    def __call__(self, work: Callable[[], None], pause_s: float, name: str, /) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a driver and its tasks take from outside.

    `clock`: the time, and waiting. `lake`: opens a place of the lake. `machine`: that of a task's local states.
    `kafka`: the client for a cluster's options. `arrivals`: waits for records of a cluster's topics. `operator`: the
    operator for a configuration. `recover`: brings a local state to the commit that is wanted.
    """

    clock: Clock
    lake: Callable[[Place], Lake]
    machine: Machine
    kafka: Callable[[Mapping[str, str]], KafkaClient]
    arrivals: Callable[[Mapping[str, str]], Arrivals]
    operator: Callable[[OperatorRules], Operator]
    in_background: Background
    repeating: Repeating
    map_parallel: Parallel
    map_waiting: Parallel
    recover: Callable[[LocalState, Operator, Wanted, PartitionLog], Recovered]


@lru_cache(maxsize=16)
def _operator(config: OperatorRules) -> Operator:
    return operator_for(config)


REAL = Environment(
    clock=SYSTEM_CLOCK,
    lake=open_lake,
    machine=THIS_MACHINE,
    kafka=client,
    arrivals=LongPolls,
    operator=_operator,
    in_background=in_background,
    repeating=repeating,
    map_parallel=map_parallel,
    map_waiting=map_waiting,
    recover=recover,
)
