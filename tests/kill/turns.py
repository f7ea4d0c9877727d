"""Turns of a disturbed application: in each a service is started, records come, and something happens to it.

Beside it an application reads the same topic undisturbed; in the end both have published the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tests.kill.harness import SUPPRESSION, Feed, Record, commits, committed, configure, newest, records, split
from tests.kill.service import FENCED, Service, Start, in_turn
from tidegate.runtime.task.shares import FEW_RECORDS
from tidegate.state.lake.place import Place

BY_ITSELF = {
    "after_claim",
    "after_lease",
    "during_configuration_change",
    "between_initialisations",
    "in_settling_before_end",
    "in_settling_after_end",
    "during_idle_advance",
}
"""Places that a service comes to without new records."""
PART_S = 20.0
"""A part takes so long to come, unless what it is waited for has happened before."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A service, how it is started, and what happens to it."""

    name: str
    start: Start
    act: Callable[[Service], None]


@dataclass(kw_only=True)
class World:
    """Two applications over one topic: `disturbed` and `calm`. `described`: their operator.

    `outputs` and `dead_letters` are the topics that they write, by application; the operator may lack either.
    """

    bootstrap: str
    source: str
    outputs: dict[str, str]
    folder: Path
    say: Callable[[str], None]
    new_lake: Callable[[Path], Place]
    dead_letters: dict[str, str] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=lambda: SUPPRESSION)
    parts: list[Sequence[Record]] = field(default_factory=list)
    fed: int = 0
    stopped: Service | None = None

    def __post_init__(self) -> None:
        self.feed = Feed(self.bootstrap, self.source)
        self._numbers = count(1)

    def fill(self, number: int, parts: int) -> None:
        """So many records are going to come, in so many parts."""
        self.parts = split(records(number), parts)

    def file(self, name: str, **changed: object) -> Path:
        """A configuration of the application that the name begins with."""
        application = name.partition("-")[0]
        output, dead_letters = self.outputs.get(application), self.dead_letters.get(application)
        described = self.described | ({} if dead_letters is None else {"dead_letters": dead_letters})
        lake, file = self._lake(application), self.folder / f"{name}.yaml"
        return configure(file, self.bootstrap, self.source, output, described, lake, **changed)

    def feed_part(self, seconds: float = PART_S) -> None:
        """The next part, if there is one, is coming."""
        if self.parts:
            part = self.parts.pop(0)
            self.fed += len(part)
            self.feed.start(part, seconds)

    def feed_all(self) -> None:
        """All records are there."""
        while self.parts:
            self.feed_part(0.0)
        self.feed.finish()

    def take(self, turns: Sequence[Turn]) -> None:
        """The turns are taken, one after the other; tells of each."""
        with in_turn([turn.start for turn in turns]) as services:
            for number, (turn, service) in enumerate(zip(turns, services, strict=True), 1):
                began = time.monotonic()
                turn.act(service)
                self.say(f"{number:3}/{len(turns)} {turn.name}: {time.monotonic() - began:.1f} s")

    def compare(self) -> int:
        """None lost, none twice, the order of every partition kept, and the epochs in order; gives the emissions."""
        epochs = [commit["epoch"] for commit in commits(self._lake("disturbed"))]
        assert epochs == sorted(epochs), "a driver has committed after it was taken over"
        return self._compare(self.outputs)

    def compare_dead_letters(self) -> int:
        """The same of dead letters; gives their number."""
        return self._compare(self.dead_letters)

    def _compare(self, topics: dict[str, str]) -> int:
        calm = committed(self.bootstrap, topics["calm"])
        assert committed(self.bootstrap, topics["disturbed"]) == calm
        return sum(map(len, calm))

    # ---- turns that end in a kill

    def dies(self, file: Path, at: str, *, stateless: bool = False, cold: bool = False) -> Turn:
        """Killed at a place; before that the local state was deleted, if `stateless`. `cold`: before Spark is there."""
        act = partial(self._dies, at=at, stateless=stateless)
        return self._turn(f"dies {at}" + ", cold" * cold, file, act, kill_at=at, cold=cold)

    def _dies(self, service: Service, *, at: str, stateless: bool) -> None:
        if at in BY_ITSELF:
            self._prepare(at, stateless)
            service.go()
        else:  # batches have to follow each other, however long it took to start
            self._prepare_state(stateless)
            service.go().wait_ready()
            self.feed_part()
        with asked_to_compact(service, "compaction" in at):
            service.wait_death()

    def _prepare_state(self, stateless: bool) -> None:
        if stateless:
            self.delete_state()

    def _prepare(self, at: str, stateless: bool) -> None:
        self._prepare_state(stateless)
        if at == "during_idle_advance":
            self.feed_all()
        else:
            self.feed_part()

    def dies_after(
        self, file: Path, seconds: float, *, stateless: bool = False, compact: bool = False, cold: bool = False
    ) -> Turn:
        """Killed at some moment after it went on; in between, if `compact`, a compaction was asked for."""
        name = f"dies after {seconds:.2f} s" + ", stateless" * stateless + ", compacting" * compact
        act = partial(self._dies_after, seconds=seconds, stateless=stateless, compact=compact)
        return self._turn(name + ", cold" * cold, file, act, cold=cold)

    def _dies_after(self, service: Service, *, seconds: float, stateless: bool, compact: bool) -> None:
        self._prepare("", stateless)
        service.go()
        with asked_to_compact(service, compact):
            time.sleep(seconds)
        service.kill()

    # ---- turns that end well

    def catches_up(self, file: Path) -> Turn:
        """Everything that has come is processed."""
        return self._turn(f"{file.stem} catches up", file, self._catches_up, until_caught_up=True)

    def _catches_up(self, service: Service) -> None:
        self.feed.finish()
        service.go().wait_end()

    def continues(self, file: Path) -> Turn:
        """Everything that will ever come is processed; the one before ends."""
        return self._turn(f"{file.stem} continues", file, self._continues)

    def _continues(self, service: Service) -> None:
        self.feed_all()
        self._take_over(service)
        service.drain()

    def lets_all_go(self, file: Path) -> Turn:
        """Everything that will ever come is processed, and nothing is held any more; the one before ends."""
        return self._turn(f"{file.stem} lets all go", file, self._lets_all_go)

    def _lets_all_go(self, service: Service) -> None:
        self.feed_all()
        self._take_over(service)
        lake = self._lake(service.file.stem.partition("-")[0])
        service.wait_until(
            lambda: not any(known.totals.held for known in newest(lake).partitions.values()), "it still holds something"
        )
        service.drain()

    def outlives(self, file: Path, at: str) -> Turn:
        """A task outlives its attempt, which fails because the other worker was killed; the service goes on.

        The part is there before the service: a batch of few records would be the work of one worker.
        """
        armed = self._armed()
        return self._turn(f"outlives {at}", file, partial(self._outlives, armed=armed), kill_at=f"outlive:{at}@{armed}")

    def _outlives(self, service: Service, *, armed: Path) -> None:
        assert len(self.parts[0]) > FEW_RECORDS
        self.feed_part(0.0)
        self.feed.finish()
        armed.touch()
        service.go().wait_ready()
        service.wait_until(lambda: not armed.exists(), "no task came to the place")
        self.reach_the_end(service)
        assert "trying again" in service.lines, f"no attempt has failed:\n{service.lines}"
        service.drain()

    def loses_workers(self, file: Path, ways: Sequence[Callable[[Service], None]]) -> Turn:
        """While records come, something happens to its workers, once in each part; the service goes on."""
        return self._turn("loses workers", file, partial(self._loses_workers, ways=ways))

    def _loses_workers(self, service: Service, *, ways: Sequence[Callable[[Service], None]]) -> None:
        service.go().wait_ready()
        for way in ways:
            self.feed_part(seconds=5)
            way(service)
            self.feed.finish()
            self.reach_the_end(service)
        service.drain()

    def sees_its_broker_die(self, file: Path, deaths: Sequence[Callable[[], None]]) -> Turn:
        """While records come the broker is killed and started again; the service waits, and goes on by itself."""
        return self._turn("sees its broker die", file, partial(self._sees_its_broker_die, deaths=deaths))

    def _sees_its_broker_die(self, service: Service, *, deaths: Sequence[Callable[[], None]]) -> None:
        service.go().wait_ready()
        for die in deaths:
            self.feed_part(seconds=5)
            die()
            self.say("the broker is back")
            self.feed.finish()
            self.reach_the_end(service)
        service.drain()

    # ---- turns that end in a stop, and are taken over

    def stops(self, file: Path, at: str, *, at_once: bool = False) -> Turn:
        """Stopped at a place, at the end of a turn in which it has taken over from the one that was stopped before.

        That one goes on, and ends, when this one has reached the end of the part, or `at_once` when this one is ready.
        """
        armed = self._armed()
        kill_at = f"stop:{at}" if at in BY_ITSELF else f"stop:{at}@{armed}"
        by_arming = partial(self._stops, at=at, armed=armed, at_once=at_once)
        act = partial(self._stops_by_itself, at=at) if at in BY_ITSELF else by_arming
        return self._turn(f"stops {at}" + ", the former goes on at once" * at_once, file, act, kill_at=kill_at)

    def _stops_by_itself(self, service: Service, *, at: str) -> None:
        self._prepare(at, stateless=False)
        service.go().wait_stopped()
        self._go_on()
        self.stopped = service

    def _stops(self, service: Service, *, at: str, armed: Path, at_once: bool) -> None:
        self._take_over(service, at_once)
        self.feed_part()
        time.sleep(1.0)  # the first batch is a few records, and may have nothing to publish for who comes after
        armed.touch()
        with asked_to_compact(service, "compaction" in at):
            service.wait_stopped()
        self.stopped = service

    def _take_over(self, service: Service, at_once: bool = False) -> None:
        """The service has the operator, and the one before it has gone on, was fenced, and has ended."""
        self.feed.finish()
        service.go().wait_ready()
        if not at_once:
            self.reach_the_end(service)
        self._go_on()
        self.feed.finish()
        self.reach_the_end(service)

    def _go_on(self) -> None:
        if self.stopped is not None:
            self.feed_part(seconds=5)  # without anything to do it would not notice that it was taken over
            self.stopped.wait_end(FENCED)
            assert "a newer driver has claimed" in self.stopped.lines, self.stopped.lines
            self.stopped = None

    def reach_the_end(self, service: Service) -> None:
        """The service has committed everything that has come."""
        lake = self._lake(service.file.stem.partition("-")[0])

        def reached() -> bool:
            return sum(newest(lake).next_offsets.values()) >= self.fed  # a retry may have repeated some

        service.wait_until(reached, "it did not reach the end of the part", pause_s=0.3)

    # ---- takeovers by a service that stands by, on another machine: it has another state folder

    def is_taken_over(self, kills: int, moments: Callable[[], float]) -> list[float]:
        """Kill the service that drives so many times, each time some moments after records began to come.

        Another one stands by. Gives the seconds from each kill until that one drives.
        """
        files = [self.file(f"disturbed-{number}", state=f"./disturbed/state-{number}") for number in range(2)]
        starts = [Start(file=files[number % 2], standby=True) for number in range(kills + 1)]
        took = []
        with in_turn(starts) as services:
            driving = next(services).go()
            driving.wait_ready()
            for following in services:
                following.go().wait_for("stands by")
                self.feed_part(seconds=5)
                time.sleep(moments())
                killed_at = time.monotonic()
                driving.kill()
                following.wait_ready()
                took.append(time.monotonic() - killed_at)
                self.say(f"{len(took):3}/{kills} taken over: {took[-1]:.1f} s")
                driving = following
            self.feed_all()
            self.reach_the_end(driving)
            driving.drain()
        return took

    # ---- what happens beside

    def delete_state(self) -> None:
        """No local state is left of the disturbed application."""
        shutil.rmtree(self.folder / "disturbed" / "state")

    def _armed(self) -> Path:
        """A file that arms one service."""
        return self.folder / f"armed-{next(self._numbers)}"

    def _lake(self, application: str) -> Place:
        return self.new_lake(self.folder / application / "lake")

    def _turn(self, name: str, file: Path, act: Callable[[Service], None], **start: Any) -> Turn:
        return Turn(name=name, start=Start(file=file, **start), act=act)


@contextmanager
def asked_to_compact(service: Service, wanted: bool, *operator: str) -> Iterator[None]:
    """If wanted, `tidegate compact` was called as soon as the service was ready, for one operator if it is named."""
    if not wanted:
        yield
        return
    service.wait_ready()
    which = [option for name in operator for option in ("--operator", name)]
    asking = subprocess.Popen([sys.executable, "-m", "tidegate.cli.main", "compact", str(service.file), *which])
    try:
        yield
    finally:
        asking.kill()
        asking.wait()
