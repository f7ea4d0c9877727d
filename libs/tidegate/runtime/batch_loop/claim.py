"""Making an operator this driver's: its log opened, its topics checked, claimed, and everything committed published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.errors import Fenced, StateError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.naming import log_path
from tidegate.contracts.schema import BatchMeta, log_schema
from tidegate.control.ledger import OperatorKey
from tidegate.operators.registry import operator_for
from tidegate.runtime import clock
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.beginning import (
    refuse_anew,
    traces_in_database,
    traces_in_kafka,
    traces_of_states,
)
from tidegate.runtime.batch_loop.metadata import after_claim
from tidegate.runtime.configuration.application import Application, config_hash, settings_of
from tidegate.runtime.configuration.changes import as_kept, check_changes, remembered
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.publishing import topics
from tidegate.runtime.publishing.publication import Publication
from tidegate.runtime.publishing.topics import Outlets
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import newest_version, require_there
from tidegate.state.delta_log.operator_log import OperatorLog


class Overtaken(Fenced):
    """The log says that a newer driver owns the operator: there is no doubt about it."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What a claim gives: the log, the configuration as the log goes on under it, the claim's metadata, and the output
    side, if there is an output."""

    log: OperatorLog
    config: OperatorConfig
    meta: BatchMeta
    publication: Publication | None


class Claimant:
    """Claims one operator of an application, again after every doubt."""

    def __init__(
        self, application: Application, name: str, kafka: Callable[[], KafkaClient], *, deadline_s: float
    ) -> None:
        self._application, self._name, self._kafka, self._deadline_s = application, name, kafka, deadline_s
        self._config = application.operators[name]
        self._attempts: set[str] = set()
        self._log: OperatorLog
        self._newest: BatchMeta

    def reconfigure(self, application: Application) -> None:
        """The next claim is made under that configuration."""
        self._application, self._config = application, application.operators[self._name]

    def claim(self) -> Claimed:
        """The operator is claimed, older drivers are fenced, everything committed is published.

        Overtaken if another driver has claimed it since this one last did.
        """
        known = self._newest.topics if self._attempts else {}
        topics = preflight.find_topics(self._kafka(), self._config, known)
        starts = offsets.earliest(self._kafka(), self._config.input)
        self._refuse_anew(starts)
        self._log = self._open_log()
        before = self._log.newest() or preflight.first_meta(
            self._name, self._log.table_id, clock.now_ms(), self._config.input, starts
        )
        self._refuse_overtaken(before)
        self._newest = before
        preflight.check_topics(before, self._config, topics)
        preflight.check_nothing_lost(before, self._config, starts)
        self._config = as_kept(before, self._config)
        check_changes(before, self._config)
        self._settle_former_outlets()
        wanted = topics.configured(self._config)
        self._commit_claim(topics.ids, wanted)
        publication = self._published_to(wanted) if wanted.topics else None
        return Claimed(log=self._log, config=self._config, meta=self._newest, publication=publication)

    def _open_log(self) -> OperatorLog:
        path = log_path(self._application.lake, self._name)
        if self._attempts:
            require_there(path)
        schema = log_schema(operator_for(self._config).columns)
        return OperatorLog.open(path, self._name, schema, create=not self._attempts)

    def _refuse_anew(self, starts: Mapping[int, int]) -> None:
        path = log_path(self._application.lake, self._name)
        with disk.disk_errors(path):
            begins = not self._attempts and newest_version(path) is None
        if begins:
            refuse_anew(self._name, path, self._traces(starts))

    def _traces(self, starts: Mapping[int, int]) -> Iterator[str]:
        """What an earlier run of the operator has left outside of the lake."""
        application, key = self._application, OperatorKey(self._application.application, self._name)
        yield from traces_of_states(application.state / application.application, self._name)
        yield from traces_in_database(application.control_database, key)
        yield from traces_in_kafka(self._kafka(), key, self._config.input, sorted(starts))

    def _refuse_overtaken(self, found: BatchMeta) -> None:
        """A claim of this driver that was in doubt may be the newest: then nobody has overtaken it."""
        if self._attempts and found.epoch > self._newest.epoch and found.attempt not in self._attempts:
            raise Overtaken(
                f"a newer driver has claimed {self._name}; this one stops",
                value=f"epoch {found.epoch}, own {self._newest.epoch}",
                remedy="none is needed if the other driver was meant; otherwise stop that one",
            )

    def _commit_claim(self, topics: dict[str, str], outlets_now: Outlets) -> None:
        former = topics.claimed(self._newest, self._config.input)
        claim = after_claim(
            self._newest,
            attempt=uuid4().hex,
            clock=clock.now_ms(),
            config=config_hash(self._config),
            topics=topics,
            settings=settings_of(self._config),
        )
        known = remembered(self._newest, self._config)
        claim = replace(claim, dead_letters=outlets_now.dead_letters, remembered=known)
        if outlets_now.output not in (None, former.output):
            claim = replace(claim, published_from=claim.batch)
        if outlets_now.dead_letters not in (None, former.dead_letters):
            claim = replace(claim, dead_letters_from=claim.batch)
        self._attempts.add(claim.attempt)
        self._log.commit(claim, [])
        if self._newest.config not in ("", claim.config):
            reach("during_configuration_change")
        self._newest = claim
        reach("after_claim")

    def _settle_former_outlets(self) -> None:
        """What is committed for a topic that the configuration no longer has in that place is published there.

        Under a claim that still names it, so that a crash in between does not make it forgotten.
        """
        former, wanted = topics.claimed(self._newest, self._config.input), topics.configured(self._config)
        if any(was not in (None, now) for was, now in zip(former, wanted, strict=True)):
            self._commit_claim(self._newest.topics, former)
            self._published_to(former)

    def _published_to(self, wanted: Outlets) -> Publication:
        publication = publication_of(self._application, self._name, self._kafka, self._log, wanted, self._deadline_s)
        try:
            publication.start(sorted(self._newest.offsets[self._config.input]), self._newest)
        except StateError:  # such as a mark above this claim: that of a driver which has claimed since
            self._refuse_overtaken(self._open_log().newest() or self._newest)
            raise
        return publication


def publication_of(
    application: Application,
    name: str,
    kafka: Callable[[], KafkaClient],
    log: OperatorLog,
    wanted: Outlets,
    deadline_s: float,
) -> Publication:
    """Return the output side of an operator of the application; nothing is asked for or written yet."""
    config = application.operators[name]
    return Publication(
        kafka,
        log,
        application=application.application,
        operator=name,
        input=config.input,
        outlets=wanted,
        times_in_values=config.timestamp is not None,
        windows=config.adds_windows(),
        deadline_s=deadline_s,
    )
