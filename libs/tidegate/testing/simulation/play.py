"""One simulated run: a phase with faults, a calm phase in which all work finishes, and a final comparison."""

from __future__ import annotations

import json
import logging
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tidegate.contracts import kill_points
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import EngineError, Fenced, InputTruncated, Superseded, Undecided
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import Application, application_of, config_of, settings_of
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.repair.settle import NothingUndecided, settle
from tidegate.runtime.repair.skip import skip
from tidegate.state import driver_leases, leases
from tidegate.state.alignment_decisions import Lease
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.driver_requests import Kind, Requester
from tidegate.state.lake.place import Place
from tidegate.state.slots import live_rows
from tidegate.testing.simulation.chance import Chance
from tidegate.testing.simulation.edits import is_refusal, plan_edit
from tidegate.testing.simulation.environment.client import SimulatedClient
from tidegate.testing.simulation.environment.lake import SimulatedLake
from tidegate.testing.simulation.environment.simulated import environment_of
from tidegate.testing.simulation.environment.spark import SimulatedSpark
from tidegate.testing.simulation.environment.workers import SimulatedWorkers
from tidegate.testing.simulation.feed import Feed
from tidegate.testing.simulation.judges.changing import (
    ChangingMergingOracle,
    ChangingMergingReaderOracle,
    ChangingOracle,
    ChangingReaderOracle,
)
from tidegate.testing.simulation.judges.joined import JoinOracle, ReaderOracle, TableOracle
from tidegate.testing.simulation.judges.merged import MergingOracle, MergingReaderOracle, MergingTableOracle
from tidegate.testing.simulation.judges.oracle import (
    Oracle,
    Violation,
    sorted_rows,
)
from tidegate.testing.simulation.kafka.broker import OFFSET_RETENTION_S
from tidegate.testing.simulation.machine import Machine
from tidegate.testing.simulation.settings import (
    APPLICATION,
    DEAD_LETTERS,
    EDITED,
    INPUT,
    JOINED,
    OPERATOR,
    OPERATORS,
    OUTPUT,
    TABLE_INPUTS,
    TABLE_OPTIONS,
    TABLES,
    TWO_INPUTS,
    Edit,
    Settings,
)
from tidegate.testing.simulation.stage import Actor, Crash
from tidegate.testing.simulation.world import World

MOST_DRIVERS = 3
CALM_MOMENTS = 300
_BATCHES_BETWEEN_COMPACTIONS = 6
_COMMAND_PAUSE_S = 1.0
_PATIENCE_S = 300.0
"""How long a requester waits for an answer."""
_COMES_BACK = 0.3
"""Probability that an unmounted lake is mounted again at the next moment."""
_EXPECTED_ENDS = (Crash, EngineError, Fenced, InputTruncated, NothingUndecided, Superseded, Undecided)
_JUMPS_MS = (-86_400_000, -30_000, -500, 700, 45_000, 86_400_000)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a run.

    `problem` says what was wrong, None if nothing. `counts` has the number of times that each fault occurred, `events`
    that of other events, including places that processes reached and died at. `story` is the log of a verbose run.
    """

    settings: Settings
    problem: str | None
    counts: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)


def simulate(settings: Settings) -> Report:
    """Play the run that the settings describe and return its report."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name, _silent():
        application = _application(settings.operator)
        world = World(settings, Path(name), _oracle(application, settings))
        play = Play(world, application)
        with kill_points.watched(world.step):
            problem = play.problem()
        return Report(
            settings=settings, problem=problem, counts=world.chance.counts, events=world.events, story=world.story
        )


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress Tidegate's own log lines; a run with many faults logs many."""
    lines = logging.getLogger("tidegate")
    level = lines.level
    lines.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        lines.setLevel(level)


@cache
def _application(operator: str) -> Application:
    """Return the application with the operator of that name, and the tables that it reads."""
    return application_of(
        {
            "application": APPLICATION,
            "lake": "lake",
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": "simulation:9092"},
            "allow": ["tidegate.operators.testing.reducers"],
            "operators": {table: {"input": TABLE_INPUTS[table], **TABLE_OPTIONS} for table in TABLES[operator]}
            | {OPERATOR: {"input": INPUT, "output": OUTPUT, **OPERATORS[operator]}},
        }
    )


def _oracle(application: Application, settings: Settings) -> Oracle:
    config, partitions = application.operators[OPERATOR], settings.partitions
    merges = settings.operator in TWO_INPUTS
    tables = {name: _table_oracle(application.operators[name], partitions) for name in TABLES[settings.operator]}
    if settings.operator in EDITED:
        if tables:
            return (ChangingMergingReaderOracle if merges else ChangingReaderOracle)(config, tables, partitions)
        return (ChangingMergingOracle if merges else ChangingOracle)(config, partitions)
    if not tables:
        return (MergingOracle if merges else Oracle)(config, partitions)
    reader = JoinOracle if settings.operator == JOINED else MergingReaderOracle if merges else ReaderOracle
    return reader(config, tables, partitions)


def _table_oracle(config: OperatorConfig, partitions: int) -> TableOracle:
    return (MergingTableOracle if len(config.inputs) > 1 else TableOracle)(config, partitions)


class Stop:
    """The stop event of a driver. Waiting on it between batches lets other processes run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False

    def set(self) -> None:
        """Ask the driver to drain and end."""
        self._set = True

    def is_set(self) -> bool:
        """Return True if the driver should end."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Let that much time pass, and return True if the driver should end."""
        if not self._set:
            self._world.sleep(seconds)
        return self._set


@dataclass(frozen=True, eq=False)
class Running:
    """A running driver of an operator, and its stop event."""

    name: str
    actor: Actor
    stop: Stop


class Play:
    """The director of one run."""

    def __init__(self, world: World, application: Application) -> None:
        self._world = world
        lake = Place.of("s3://simulation/lake" if world.settings.seed % 2 else "/simulation/lake")
        self._application = application.model_copy(update={"lake": lake})
        self.lake = SimulatedLake(world)
        self._feed = Feed(world)
        self._environment = environment_of(world, self.lake)
        self._drivers: list[Running] = []
        self._chance = world.chance.of("director")
        self._started = 0
        self._has_workers = world.chance.of("jobs").random() < 0.5  # others have a Spark on threads that a user started
        self._names = list(world.oracles)
        for table in world.oracle.tables:  # the reader has its lease before the table can drop any version
            leases.write(self.lake.plain(lake / table), OPERATOR, Lease(0, world.clock.now_ms(), {}))

    def problem(self) -> str | None:
        """Play the run and return what was wrong; None if nothing was."""
        try:
            for _ in range(self._world.settings.moments):
                self._moment()
            self._calm()
            self._compare()
        except Violation as violation:
            return str(violation)
        except Exception:  # a defect of the simulation, or of code that it called directly
            return traceback.format_exc()
        finally:
            self._kill(list(self._world.stage.actors))
        return None

    # ---- while things go wrong

    def _moment(self) -> None:
        self._world.broker.tick()
        self._feed.produce_some()
        self._inject_process_faults()
        self._inject_broker_faults()
        for name in self._without_driver():
            self._start(self._chance.choice(self._world.machines), name)
        for actor in self._world.stage.actors:
            actor.paused = max(0, actor.paused - 1)
        if ready := [actor for actor in self._world.stage.actors if not actor.paused]:
            self._world.stage.resume(self._chance.choice(ready))
        self._collect_ended()

    def _inject_process_faults(self) -> None:
        world, chance, machine = self._world, self._world.chance, self._chance.choice(self._world.machines)
        if chance.happens("clock_jump"):
            world.clock.jump(self._chance.choice(_JUMPS_MS))
        if len(self._drivers) < MOST_DRIVERS * len(self._names) and chance.happens("takeover"):
            self._start(machine, self._any_name())
        if chance.happens("forgotten_id"):
            world.broker.forget_an_id(self._chance)
        if self._drivers and chance.happens("drain"):
            self._chance.choice(self._drivers).stop.set()
        if chance.happens("reboot"):
            self._kill([actor for actor in world.stage.actors if actor.machine is machine])
            machine.lose_power(self._chance)
        if chance.happens("state_deleted"):
            machine.lose_folder()
        self._inject_lake_faults(chance)
        if (edit := EDITED.get(world.settings.operator)) is not None and chance.happens("change"):
            self._change_configuration(edit)
        for request in ("compaction", "flush"):
            if chance.happens(request):
                self._ask("compact" if request == "compaction" else "flush")

    def _inject_lake_faults(self, chance: Chance) -> None:
        if chance.happens("foreign_optimize"):
            self.lake.optimize(self._application.lake / self._any_name())
        if chance.of("lake_away").random() < _COMES_BACK:
            self.lake.is_away = False
        elif chance.happens("lake_away") and all(oracle.newest for oracle in self._world.oracles.values()):
            self.lake.is_away = True

    def _change_configuration(self, edit: Edit) -> None:
        """Give the operator another configuration, as a person does: edit the file, plan, and apply.

        If the plan refuses each edit, what is held is released, for the next time.
        """
        environment = replace(self._environment, lake=self.lake.plain)
        generator = self._world.chance.of("edits")
        planned = plan_edit(self._application, OPERATOR, edit, environment, generator)
        if planned is None:
            self._ask("flush")
        else:
            self._application = planned
            generator.choice([self._restart_all, self._ask_to_apply, self._apply_by_command])()

    def _restart_all(self) -> None:
        """Ask all services to end; those that start later have the new file."""
        for driver in self._drivers:
            driver.stop.set()

    def _ask_to_apply(self) -> None:
        """Ask the running driver to apply the file."""
        self._ask("apply", json.dumps(settings_of(self._application.operators[OPERATOR])))

    def _apply_by_command(self) -> None:
        """Apply the file by a command that takes the operator over from its drivers."""
        application = self._application_on(self._world.machines[0])

        def apply() -> None:
            operator = self._new_driver(application, OPERATOR).start()
            while not operator.apply():
                self._world.sleep(_COMMAND_PAUSE_S)

        self._enter("command", OPERATOR, self._world.machines[0], apply, Stop(self._world))

    def _undo_change(self) -> None:
        """Write the configuration in the log to the file, as the refusal of a driver that has ended says."""
        newest = self._world.oracle.newest
        assert newest is not None
        self._application = self._application.with_operator(OPERATOR, config_of(newest.settings))

    def _without_driver(self) -> list[str]:
        return [name for name in self._names if all(driver.name != name for driver in self._drivers)]

    def _any_name(self) -> str:
        return self._names[0] if len(self._names) == 1 else self._chance.choice(self._names)

    def _start(self, machine: Machine, name: str) -> None:
        stop, application = Stop(self._world), self._application_on(machine)

        def drive() -> None:
            self._new_driver(application, name).run(stop)  # type: ignore[arg-type]

        self._enter("driver", name, machine, drive, stop)

    def _enter(self, role: str, name: str, machine: Machine, work: Callable[[], None], stop: Stop) -> None:
        """Add a process that drives the operator of that name."""
        self._started += 1
        actor = self._world.stage.enter(f"{role} {self._started} of {name}", machine, work)
        self._drivers.append(Running(name, actor, stop))

    def _application_on(self, machine: Machine) -> Application:
        """Return the file as it is now, on a machine."""
        return self._application.model_copy(update={"state": machine.folder})

    def _new_driver(self, application: Application, name: str) -> OperatorDriver:
        workers: Any = SimulatedWorkers(self._world) if self._has_workers else None
        wiring = Wiring(
            spark=SimulatedSpark(self._world),
            workers=workers,
            application=application,
            name=name,
            environment=self._environment,
            newest_in_database=self._newest_in_database,
            max_batches=_BATCHES_BETWEEN_COMPACTIONS,
        )
        return OperatorDriver(wiring)

    def _newest_in_database(self, _address: object, key: OperatorKey) -> int | None:
        """Return the operator's newest batch, which the control database always has."""
        newest = self._world.oracles[key.operator].newest
        return None if newest is None else newest.batch

    def _inject_broker_faults(self) -> None:
        world, chance = self._world, self._world.chance
        if chance.happens("broker_outage"):
            world.break_broker(self._chance.uniform(1, 200))
        if chance.happens("long_silence"):
            self._kill(list(world.stage.actors))
            world.clock.advance(OFFSET_RETENTION_S + 1)
            world.broker.expire_offsets()
        if chance.happens("marks_expire"):
            world.broker.expire_offsets()
        if chance.happens("truncation") and len(self._names) == 1:
            self._truncate()
        if chance.happens("output_retention"):
            self._delete_output()

    def _delete_output(self) -> None:
        """Delete the older half of one output partition, or all of it."""
        log = self._world.broker.logs[self._chance.choice(self._world.oracle.places())]
        log.delete_before(self._chance.choice([log.end, (log.start + log.end) // 2]))

    def _truncate(self) -> None:
        """Truncate one input partition, so that it loses its newest records, while no process runs."""
        world, partition = self._world, self._chance.randrange(self._world.settings.partitions)
        self._kill(list(world.stage.actors))
        self.lake.is_away = False
        self.lake.finish_delayed()
        world.broker.tick(all_at_once=True)
        self._feed.finish(partition)
        log = world.broker.logs[INPUT, partition]
        if places := log.safe_cut_offsets():
            cut = self._chance.choice(places)
            log.truncate(cut)
            world.oracle.truncate(partition, cut)

    def _accept_truncation(self) -> None:
        """Run `skip`, as a person does who cannot restore the lost records."""
        world = self._world
        self._kill(list(world.stage.actors))
        self.lake.is_away = False
        self.lake.finish_delayed()
        machine = world.machines[0]
        application = self._application_on(machine)
        lost = {p: (world.oracle.offsets()[p], end) for p, end in world.oracle.lost_from.items()}
        actor = world.stage.enter(
            "person who skips", machine, partial(skip, application, OPERATOR, lost, environment=self._environment)
        )
        while not actor.ended:
            world.stage.resume(actor)
        self._check_end(actor)

    def _settle(self) -> None:
        """Run `settle`, as a person does after looking at what readers can see."""
        world = self._world
        self._kill(list(world.stage.actors))
        world.broker.tick(all_at_once=True)
        machine = world.machines[0]
        application = self._application_on(machine)
        for published in (True, False):
            visible = [p for p in range(world.settings.partitions) if world.oracle.is_visible(p) is published]
            actor = world.stage.enter(
                f"person, {published}",
                machine,
                partial(
                    settle,
                    application,
                    OPERATOR,
                    published=published,
                    partitions=visible,
                    environment=self._environment,
                ),
            )
            while not actor.ended:
                world.stage.resume(actor)
            self._check_end(actor)

    def _ask(self, kind: Kind, content: str = "") -> None:
        """Send a request to the driver with the newest lease, as a command on any machine does."""
        lake = self.lake.plain(self._application.lake / OPERATOR)
        if (look := driver_leases.look(lake)) is not None:
            requester = Requester(lake, self._environment.clock)
            requester.put(requester.new(kind, look.sight.epoch, _PATIENCE_S, content))

    def _kill(self, actors: list[Actor]) -> None:
        for actor in actors:
            self._world.stage.kill(actor)
        self._drivers = [driver for driver in self._drivers if not driver.actor.ended]

    def _collect_ended(self) -> None:
        """Remove drivers that have ended. Raise Violation if one ended with an unexpected error."""
        self._world.check()
        ended = [driver.actor for driver in self._drivers if driver.actor.ended]
        self._drivers = [driver for driver in self._drivers if not driver.actor.ended]
        for actor in ended:
            self._check_end(actor)
        if any(isinstance(actor.error, Undecided) for actor in ended):  # one call settles all, with all drivers stopped
            self._settle()
        if any(isinstance(actor.error, InputTruncated) for actor in ended):
            self._accept_truncation()
        if any(map(is_refusal, (actor.error for actor in ended))):
            self._undo_change()

    def _check_end(self, actor: Actor) -> None:
        error = actor.error
        self._world.say("%s has ended: %r", actor.name, error)
        self._world.events[f"ended by {type(error).__name__}"] += 1
        if error is not None and not isinstance(error, _EXPECTED_ENDS) and not self._may_be_refused(error):
            raise Violation("".join(traceback.format_exception(error)))

    def _may_be_refused(self, error: BaseException) -> bool:
        """Return whether the error is the refusal of a configuration that a person has edited."""
        return self._world.settings.operator in EDITED and is_refusal(error)

    # ---- when it is calm

    def _calm(self) -> None:
        """Stop all faults, and wait until all work is done and one driver per operator is left.

        Raise Violation if that does not happen.
        """
        world = self._world
        world.chance.calm = True
        self.lake.is_away = False
        self.lake.finish_delayed()
        self._feed.produce_rest()
        for actor in world.stage.actors:
            actor.paused = 0
        self._until(self._done)
        for _ in range(CALM_MOMENTS):
            if self._alone():
                return self._drain()
            self._feed.one_each()  # so that a driver that is fenced without knowing it tries to commit
            self._until(self._done)
        raise Violation(f"{len(self._drivers)} drivers are left")

    def _alone(self) -> bool:
        one_each = not self._without_driver() and len(self._drivers) == len(self._names)
        return one_each and len(self._world.stage.actors) == len(self._drivers)

    def _until(self, reached: Callable[[], bool]) -> None:
        world = self._world
        for _ in range(CALM_MOMENTS):
            world.broker.tick(all_at_once=True)
            for name in self._without_driver():
                self._start(world.machines[0], name)
            for actor in list(world.stage.actors):
                world.stage.resume(actor)
            self._collect_ended()
            if reached():
                return
        here = [actor.name for actor in world.stage.actors]
        raise Violation(f"it goes on for ever: {world.oracle.offsets()} of {self._feed.ends()}, by {here}")

    def _done(self) -> bool:
        oracles = self._world.oracles.values()
        read = all(own == self._feed.ends(topic) for each in oracles for topic, own in each.read_to().items())
        left = not any(oracle.is_waiting_for_table() for oracle in oracles)
        return read and left and all(o.everything_is_visible() for o in oracles) and self._world.broker.settled()

    def _drain(self) -> None:
        for survivor in self._drivers:
            survivor.stop.set()
            while not survivor.actor.ended:
                self._world.stage.resume(survivor.actor)
        self._collect_ended()
        self._world.broker.tick(all_at_once=True)
        if not self._world.oracle.everything_is_visible():
            raise Violation("output of a drained driver cannot be read")

    def _compare(self) -> None:
        """Compare the readable output, the state in the log and an undisturbed run with the oracle."""
        world, oracle = self._world, self._world.oracle
        written = LogVersion.at(self.lake.plain(self._application.lake / OPERATOR), None)
        for topic, partition in oracle.places():
            there = self._readable(topic, partition) + world.broker.logs[topic, partition].deleted
            count = oracle.due_in(topic, partition)
            _require_equal(f"records to read in {topic}/{partition}", there, count)
            world.events["dead letters" if topic == DEAD_LETTERS else "emissions"] += count
        for partition in range(world.settings.partitions):
            rows = written.read("emission", partition, columns=["batch", "seq"]).to_pylist()
            found = [(row["batch"], row["seq"]) for row in rows]
            _require_equal(f"emissions in the log of {partition}", found, oracle.made[partition])
        for name, watching in world.oracles.items():
            log = LogVersion.at(self.lake.plain(self._application.lake / name), None)
            world.events["batches"] += log.newest().batch  # type: ignore[union-attr]
            for partition in range(world.settings.partitions):
                rows, held = live_rows(log.read("state", partition), watching.slot), watching.in_log(partition)
                both = [sorted_rows(each, held.column_names) for each in (rows, held)]
                _require_equal(f"state in the log of {partition} of {name}", *both)
        for partition in range(world.settings.partitions) if oracle.is_predicted() else ():
            _require_equal(f"output of {partition}", *oracle.actual_and_expected(partition))
        world.events += oracle.events
        world.events["transactions timed out"] += world.broker.timed_out

    def _readable(self, topic: str, partition: int) -> int:
        """Return the number of committed records that a reader finds in an output partition."""
        log = self._world.broker.logs[topic, partition]
        found, position, end = 0, log.start, log.stable
        while position < end:
            client: Any = SimulatedClient(self._world)
            read = fetch(client, topic, partition, position, end, max_bytes=2**20, deadline_s=60)
            found, position = found + len(read.records), read.next_offset
        return found


def _require_equal(what: str, found: object, due: object) -> None:
    if found != due:
        raise Violation(f"{what}: {found}, must be {due}")
