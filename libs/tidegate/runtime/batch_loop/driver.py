"""The driver of one operator: it claims the operator, retries after failures, and answers requests.

What it does with the operator while the claim holds is in `claimed_operator`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, TypeVar

from tidegate.contracts.batch_metadata import BatchMeta, Ends
from tidegate.contracts.errors import EngineError, Fenced, StartOver, Superseded, TidegateError, Unavailable, UserError
from tidegate.operators.registry import operator_for
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.background_compaction import Compacting
from tidegate.runtime.batch_loop.claim import Claimant
from tidegate.runtime.batch_loop.claimed_operator import ATTEMPT_DEADLINE_S, ClaimedOperator, DriverParts, Listener
from tidegate.runtime.batch_loop.earlier_runs import NewestInDatabase, newest_in_database
from tidegate.runtime.batch_loop.lease_holder import Ended, LeaseHolder, NoLease
from tidegate.runtime.batch_loop.retries import Retries
from tidegate.runtime.batch_loop.standby import DriverWatch, Standby, newest_epoch
from tidegate.runtime.batch_loop.state_recovery import Recovering
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.configuration.changes import check_changes
from tidegate.runtime.control_sync.recording import Recorder
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka.client import PROBE_TIMEOUT_S, KafkaClient, NoSuchTopic
from tidegate.runtime.spark.jobs import SparkJobs
from tidegate.runtime.task.jobs import Jobs
from tidegate.runtime.telemetry.driver_status import DriverStatusFile, one_line
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.runtime.telemetry.observation import Observation
from tidegate.runtime.workers.jobs import WorkerJobs
from tidegate.runtime.workers.placement import team_size
from tidegate.runtime.workers.pool import TeamSize, Workers
from tidegate.state.driver_requests import Request
from tidegate.state.lease_decisions import Succession
from tidegate.state.local.instance import holding_instance, instance_of
from tidegate.state.protocol_decisions import MAX_BATCHES
from tidegate.state.request_budget import RequestBudget, batch_usd

lines = logging.getLogger("tidegate")

IDLE_POLL_S = 0.01
"""Pause after a round that found nothing to do, if `trigger` is shorter and more than new records can be next."""
LONGEST_WAIT_S = 5.0
"""Longest wait for new records; then topics, requests and the log are looked at, whether records came or not."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What a service passes to its driver.

    `workers`: those of the Spark application, which all of its drivers share; without them, each batch is a Spark job.
    `newest_in_database`: looks up an operator's newest batch in the control database. `max_batches`: after how many
    batches at most a compaction is due. `succession`: what the driver does if another one runs.
    """

    spark: Any
    application: Application
    name: str
    workers: Workers | None = None
    listener: Listener = lambda meta, seconds: None
    environment: Environment = REAL
    newest_in_database: NewestInDatabase = newest_in_database
    max_batches: int = MAX_BATCHES
    succession: Succession = Succession.TAKE_OVER


def jobs_of(wiring: Wiring) -> Jobs:
    """Return what runs the driver's work."""
    return SparkJobs(wiring.spark) if wiring.workers is None else WorkerJobs(wiring.workers, _limit(wiring.application))


def _limit(application: Application) -> TeamSize:
    return partial(team_size, is_local=application.lake.is_local, limit=application.workers_per_operator)


@dataclass(frozen=True)
class NotClaimed:
    """The driver has not claimed its operator yet."""


@dataclass(frozen=True)
class InDoubt:
    """A claimed operator that may not work: it is not open yet, or something failed. The driver must claim it again."""

    operator: ClaimedOperator


@dataclass(frozen=True)
class Owned:
    """A claimed operator that is open and may process batches."""

    operator: ClaimedOperator


class OperatorDriver:
    """The driver of one operator of an application, in this process."""

    def __init__(self, wiring: Wiring) -> None:
        self.name, self._wiring = wiring.name, wiring
        self._folder = wiring.application.state / wiring.application.application / self.name
        self._clock = wiring.environment.clock
        jobs, status = jobs_of(wiring), DriverStatusFile(self._folder, self._clock)
        self._parts = DriverParts(
            kafka=self._kafka,
            jobs=jobs,
            environment=wiring.environment,
            recovering=Recovering(jobs, status, wiring.environment.in_background),
            status=status,
            recorder=Recorder(wiring.application, self.name, status, self._clock),
            listener=wiring.listener,
        )
        self._max_batches = wiring.max_batches
        usd, operators = wiring.application.lake_budget, len(wiring.application.operators)
        now = self._clock.monotonic()
        self._budget = None if usd is None else RequestBudget.of_day(usd, operators, now)
        self._configure(wiring.application)
        self._lake = wiring.environment.lake(wiring.application.lake / self.name)
        self._holder: LeaseHolder | NoLease = NoLease()
        self._claimant = self._new_claimant(follows=None)
        self._arrivals = wiring.environment.arrivals(wiring.application.kafka)
        self._retries = Retries(self.name, status, self._clock)
        self.claim: NotClaimed | InDoubt | Owned = NotClaimed()
        self._last_try_succeeded = self._shares_lake = self._was_fenced = False
        self._last_try_at: float | None = None
        self._processed: Ends = {}

    def observe(self) -> Observation:
        """Return a snapshot of the driver's progress, for another thread. This makes no request."""
        seen = Observation(
            operator=self.name,
            input=self._config.input,
            status=self._parts.status.last,
            loop_age_s=None if self._last_try_at is None else self._clock.monotonic() - self._last_try_at,
            compactions=self._compacting.count,
            compaction_s=self._compacting.seconds,
        )
        claim = self.claim
        if isinstance(claim, NotClaimed):
            return seen
        operator, size = claim.operator, claim.operator.log.size
        return replace(seen, newest=operator.newest, ends=operator.ends, files=size.files, state_rows=size.state_rows)

    def _configure(self, application: Application) -> None:
        """Use this configuration from the next claim on."""
        self._application, self._config = application, application.operators[self.name]
        keep = application.keep_output
        self._compacting = Compacting(
            jobs=self._parts.jobs,
            slot=operator_for(self._config).slot,
            keep_output_ms=None if keep == "forever" else keep,
            rewind_window_ms=self._config.rewind_window,
            in_background=self._parts.environment.in_background,
            clock=self._clock,
            max_batches=self._max_batches,
        )

    def _new_claimant(self, follows: int | None, *, as_logged: bool = False) -> Claimant:
        return Claimant(
            self._application,
            self.name,
            self._kafka,
            deadline_s=ATTEMPT_DEADLINE_S,
            environment=self._parts.environment,
            newest_in_database=self._wiring.newest_in_database,
            follows=follows,
            as_logged=as_logged,
            committed=self._note_claim,
        )

    def _note_claim(self, claim: BatchMeta) -> None:
        self._holder.claimed(claim.epoch)

    # ---- the claim

    def start(self) -> ClaimedOperator:
        """Claim the operator, fence older drivers, and publish all committed output that is not published yet."""
        self._compacting.drop()
        # takes about as long as the claim
        warm = self._parts.environment.in_background(lambda: self._parts.jobs.warm_up(self._config), "warm-up")
        claimed = self._claimant.claim()
        if claimed.config != self._config:
            self._configure(self._application.with_operator(self.name, claimed.config))
        operator = ClaimedOperator(claimed, self._application, self._compacting, self._parts)
        self.claim = InDoubt(operator)
        # rule: start-at-claim
        operator.open()
        warm.result()
        if not self._shares_lake:
            # rule: shared-lake/driver
            self._parts.jobs.check_lake(operator.log.lake)
            self._shares_lake = True
        self.claim = Owned(operator)
        return operator

    def _put_in_doubt(self) -> None:
        """Claim again before any further work."""
        if isinstance(self.claim, Owned):
            self.claim = InDoubt(self.claim.operator)

    # ---- running

    def run(self, stop: Event, *, until_caught_up: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Start the operator if needed, then run batches until `stop` is set or a command asks for the end.

        If another driver runs, do what `Wiring.succession` says. With `until_caught_up`, return once the records
        present at startup are processed and published. `ready` is called once, after the start and before the first
        batch. At a normal end the driver drains, which makes the local state durable. Wait out outages of brokers and
        disks. Raise UserError, BufferFull, Fenced, StateError or EngineError.
        """
        with holding_instance(self._folder, self._clock) as instance:
            self._parts.status.is_own = instance == instance_of(self._folder)
            with self._parts.recorder.recording_run(), self._parts.status.recording_run():
                self._run_in_turn(stop, instance, until_caught_up=until_caught_up, ready=ready)

    def _run_in_turn(self, stop: Event, instance: str, *, until_caught_up: bool, ready: Callable[[], None]) -> None:
        """Drive the operator when it is this driver's turn; when it was fenced and is a standby, wait for the next."""
        ended = False
        while not ended and self._await_turn(stop, instance):
            try:
                self._drive(stop, instance, until_caught_up=until_caught_up, ready=ready)
                ended = True
            except Fenced as error:
                # rule: fenced-stands-by
                if self._wiring.succession is not Succession.STAND_BY:
                    raise
                self._give_up_claim(error)

    def _await_turn(self, stop: Event, instance: str) -> bool:
        """Wait until this driver may claim the operator; return False if `stop` was set first."""
        way = self._wiring.succession
        if not isinstance(self.claim, NotClaimed) or way is Succession.TAKE_OVER:
            return True
        watch = DriverWatch(self._lake, instance, self._application.takeover_after_ms, self._clock)
        standby = Standby(
            self.name,
            watch,
            lambda: newest_epoch(self._lake),
            way,
            self._parts.status,
            was_fenced=self._was_fenced,
        )
        follows = standby.await_turn(stop)
        self._claimant = self._new_claimant(follows, as_logged=standby.saw_driver)
        return follows is not None

    def _give_up_claim(self, error: Fenced) -> None:
        """Forget the claim that a newer driver has fenced, to stand by again."""
        line = "%s stands by again: %s"
        lines.warning(line, self.name, one_line(error), extra=log_fields(self.name))
        self._compacting.drop()
        self.claim, self._last_try_succeeded, self._processed = NotClaimed(), False, {}
        self._was_fenced = True

    def _drive(self, stop: Event, instance: str, *, until_caught_up: bool, ready: Callable[[], None]) -> None:
        holder = self._holder = LeaseHolder(
            self.name,
            self._lake,
            self._parts.environment,
            instance=instance,
            takeover_after_ms=self._application.takeover_after_ms,
            committed_clock=self._committed_clock,
        )
        with holder.keeping():
            if not isinstance(self.claim, NotClaimed):
                holder.claimed(self.claim.operator.newest.epoch)
            self._run_until(Ended(stop, holder), until_caught_up=until_caught_up, ready=ready)
            if (request := holder.stop_request) is not None:
                with suppress(EngineError):  # the requester finds that the lease is gone
                    holder.done(request)

    def _run_until(self, ended: Ended, *, until_caught_up: bool, ready: Callable[[], None]) -> None:
        targets = self._with_retries(ClaimedOperator.stable_ends, ended)
        if targets is None:
            return
        ready()
        try:
            self._run_rounds(ended, targets if until_caught_up else None)
        finally:
            self._arrivals.close()
            self._parts.recovering.give_up()
        if not isinstance(self.claim, NotClaimed):
            self.claim.operator.drain()

    def _committed_clock(self) -> int:
        return 0 if isinstance(self.claim, NotClaimed) else self.claim.operator.newest.clock

    def _run_rounds(self, ended: Ended, targets: Ends | None) -> None:
        pause_s = self._application.trigger_ms / 1_000
        while not ended.is_set():
            moved = self._with_retries(self._round, ended)
            if moved is None or (targets is not None and self.has_reached(targets)):
                return
            if moved:
                ended.wait(self._pause_after_batch())
            elif targets is None and isinstance(self.claim, Owned) and self.claim.operator.awaits_records_only():
                self._wait_for_records(self.claim.operator, ended)
            else:
                ended.wait(max(pause_s, IDLE_POLL_S))

    def _pause_after_batch(self) -> float:
        """Return how long to wait after a batch, s: for `trigger`, unless records are left over, and for the budget."""
        if not isinstance(self.claim, Owned):
            return 0.0
        operator, now = self.claim.operator, self._clock.monotonic()
        pause_s = 0.0 if operator.is_behind() else self._application.trigger_ms / 1_000
        if self._budget is None:
            return pause_s
        self._budget = self._budget.spent(batch_usd(operator.log.take_puts()), now)
        return max(pause_s, self._budget.delay_s(now))

    def _wait_for_records(self, operator: ClaimedOperator, ended: Ended) -> None:
        """Wait until there are records to read, at most LONGEST_WAIT_S; end early for a request and for the end."""
        self._arrivals.wait(
            operator.next_positions(),
            longest_s=LONGEST_WAIT_S,
            interrupted=lambda: ended.is_set() or ended.has_request(),
        )

    def _round(self, operator: ClaimedOperator) -> bool:
        """Run one round of the operator, then answer a request; return whether a batch ran."""
        moved = operator.round()
        if (request := self._holder.request()) is not None:
            self._answer(operator, request)
        self._processed = operator.processed()
        return moved

    @property
    def waits(self) -> str:
        """Return what the operator's due records wait for, as its status says; empty while nothing waits."""
        return self._parts.status.last.waits

    def has_reached(self, targets: Ends) -> bool:
        """Return whether all records before these offsets are processed and published, as of the last complete round.

        They are not while a record that is due waits for the table of a join. May be called from another thread.
        """
        processed = self._processed
        return all(
            processed.get(topic, {}).get(partition, -1) >= target
            for topic, own in targets.items()
            for partition, target in own.items()
        )

    # ---- retries

    def _with_retries(self, work: Callable[[ClaimedOperator], Answer], ended: Ended) -> Answer | None:
        """Return the work's result; None if the end was asked for first. Failures are retried as `retries` defines."""
        return self._retries.run(lambda: self._run_owned(work), ended)

    def _run_owned(self, work: Callable[[ClaimedOperator], Answer]) -> Answer:
        """Run the work with the claimed operator and return its result, after a failure only once a broker answers.

        Claim the operator first if it is not certain that this driver still owns it.
        """
        self._last_try_at = self._clock.monotonic()
        try:
            if not self._last_try_succeeded:
                self._kafka().probe(PROBE_TIMEOUT_S)
            operator = self.claim.operator if isinstance(self.claim, Owned) else self.start()
            self._last_try_succeeded = False
            answer = work(operator)
        # rule: fenced-starts-over, refusal-starts-over
        except (StartOver, Fenced, Superseded):
            self._put_in_doubt()
            raise
        except NoSuchTopic as error:
            if not isinstance(self.claim, Owned):
                raise
            raise preflight.gone(error) from error
        finally:
            unclear = () if isinstance(self.claim, NotClaimed) else self.claim.operator.publication.unclear
            self._parts.status.write_unclear(unclear)
        self._last_try_succeeded = True
        return answer

    # ---- requests

    def _answer(self, operator: ClaimedOperator, request: Request) -> None:
        """Carry out the request and answer it; if that has to wait, the next round does it.

        A request to stop is answered after the end.
        """
        why: TidegateError | None = None
        if request.kind == "stop" or (request.kind == "flush" and not operator.flush()):
            return
        if request.kind == "apply":
            why = self._reconfigure(operator, request)
        elif request.kind == "compact":
            operator.compact()
        if why is None:
            self._holder.done(request)
        else:
            self._holder.refuse(request, why)

    def _reconfigure(self, operator: ClaimedOperator, request: Request) -> TidegateError | None:
        """Claim under the requested configuration in the next round, or return why not.

        Raise Unavailable while no broker answers: the request stays pending.
        """
        try:
            config = config_of(json.loads(request.content))
            check_changes(operator.newest, config)
            preflight.check_surroundings(self._kafka(), operator.newest, config)
        except Unavailable:
            raise
        except (TidegateError, ValueError) as error:
            lines.warning("%s: the configuration stays as it is: %s", self.name, error)
            return error if isinstance(error, TidegateError) else UserError(str(error))
        self._compacting.drop()
        self._configure(self._application.with_operator(self.name, config))
        self._claimant.reconfigure(self._application)
        self._put_in_doubt()
        return None

    def _kafka(self) -> KafkaClient:
        return self._parts.environment.kafka(self._application.kafka)
