"""Everything that the parts of one simulated run share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.testing.simulation.chance import Chance
from tidegate.testing.simulation.clock import VirtualClock
from tidegate.testing.simulation.judges.oracle import Oracle
from tidegate.testing.simulation.kafka.broker import Broker
from tidegate.testing.simulation.machine import Machine
from tidegate.testing.simulation.settings import (
    DEAD_LETTERS,
    FURTHER_INPUT,
    INPUT,
    OPERATOR,
    OUTPUT,
    OUTPUT_BY_KEY,
    PARTITIONS_BY_KEY,
    SECOND_OUTPUT,
    TABLE,
    Settings,
)
from tidegate.testing.simulation.stage import Actor, Crash, Stage

STEP_S = 0.003
_LONGEST_LINE = 300
_RARE = {
    "in_settling_before_end",
    "in_settling_after_end",
    "before_compaction_commit",
    "after_compaction_commit",
    "during_idle_advance",
}
"""Kill points that a run rarely reaches; a process dies there with a higher probability."""
_PAUSES_S = (0.1, 5.0, 100.0, 400.0)
"""How long a process is paused; the transaction timeout is 180 s."""


class World:
    """Clock, faults, broker, machines and processes of one run, and the oracle that checks it."""

    def __init__(self, settings: Settings, folder: Path, oracle: Oracle) -> None:
        self.settings, self.folder, self.oracle = settings, folder, oracle
        self.chance = Chance(settings.seed, settings.faults, settings.intensity)
        self.clock = VirtualClock()
        self.stage = Stage()
        of_tables = [topic for table in oracle.tables.values() for topic in table.inputs_by_topic]
        topics = dict.fromkeys(
            (INPUT, OUTPUT, SECOND_OUTPUT, DEAD_LETTERS, TABLE, FURTHER_INPUT, *of_tables), settings.partitions
        )
        self.broker = Broker(topics | {OUTPUT_BY_KEY: PARTITIONS_BY_KEY}, settings.version, self.clock, self.chance)
        self.machines = [Machine(f"machine-{number}", folder / f"machine-{number}") for number in range(2)]
        self.broker.watchers = oracle.watchers
        self.events: Counter[str] = Counter()
        self.story: list[str] = []
        self.beside: dict[Actor | None, Callable[[], None]] = {}
        """What a process does beside its main work; it is done when the process waits."""
        self._down_until_s = 0.0

    def step(self, place: str) -> None:
        """Note that the current process has reached that place; it may die there, pause, or let others run first."""
        actor = self.stage.current
        if actor is None or self.stage.dying() or not self.stage.is_turn_of_this_thread():
            return
        self.clock.advance(STEP_S)
        self.check()
        self.events[place] += 1
        if self.chance.happens(_death(place)):
            self.events[f"crash {place}"] += 1
            self.say("dies at %s", place)
            raise Crash(place)
        actor.budget -= 1
        if self.chance.happens("pause"):
            self.say("stands still at %s", place)
            actor.paused = self.chance.of("pause").randrange(2, 12)
            self.clock.advance(self.chance.of("pause").choice(_PAUSES_S))
            self.stage.park()
        elif actor.budget == 0 or self.chance.happens("switch"):
            self.stage.park()

    def sleep(self, seconds: float) -> None:
        """Let at least that much time pass, and let others run."""
        self.clock.advance(seconds + self.chance.of("sleep").random())
        if self.stage.current is not None and not self.stage.dying():
            if (work := self.beside.get(self.stage.current)) is not None:
                work()
            self.stage.park()

    def break_broker(self, seconds: float) -> None:
        """Answer no request for that long."""
        self._down_until_s = self.clock.monotonic() + seconds

    def broker_is_down(self) -> bool:
        """Return True while no request is answered."""
        return not self.chance.calm and self.clock.monotonic() < self._down_until_s

    @property
    def oracles(self) -> dict[str, Oracle]:
        """The oracles of the operator and of the tables that it reads, by operator name."""
        return {OPERATOR: self.oracle, **self.oracle.tables}

    def check(self) -> None:
        """Raise Violation if an oracle has found anything wrong so far."""
        for oracle in self.oracles.values():
            oracle.check()

    def committed(self, meta: BatchMeta, version: int) -> None:
        """Pass a batch that was committed to an operator's log at that Delta version to the oracle."""
        self.say("batch %d of epoch %d is in the log: %s %s", meta.batch, meta.epoch, meta.action, meta.changed)
        oracle = self.oracles[meta.operator]
        self.events["applied"] += meta.action == "apply"
        ends = {partition: log.end for (topic, partition), log in self.broker.logs.items() if topic == oracle.input}
        oracle.committed(meta, ends, version)

    def note_foreign_version(self, operator: str, version: int) -> None:
        """Pass on that another program has written that Delta version of the log, without changing data."""
        self.oracles[operator].note_foreign_version(version)

    def say(self, line: str, *facts: object) -> None:
        """Add the line to the story of the run if the run is verbose."""
        if self.settings.verbose:
            actor: Any = self.stage.current
            text = (line % facts)[:_LONGEST_LINE]
            self.story.append(f"{self.clock.monotonic():10.2f} {actor.name if actor else '-':20} {text}")


def _death(place: str) -> str:
    """Return the name of the fault by which a process can die at that place."""
    if " " in place:
        return "crash"
    return "rare_kill" if place in _RARE else "kill"
