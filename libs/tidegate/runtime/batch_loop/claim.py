"""The claim, by which a driver takes over an operator: open the log, check the topics, commit a new epoch, publish.

The commit of the claim raises the epoch, which fences drivers of older epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import Fenced, StateError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.naming import group_id
from tidegate.control.ledger import OperatorKey
from tidegate.operators.registry import columns_of
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.earlier_runs import (
    NewestInDatabase,
    newest_in_database,
    refuse_second_log,
    traces_in_database,
    traces_in_kafka,
    traces_of_states,
)
from tidegate.runtime.batch_loop.next_metadata import after_claim, first_meta
from tidegate.runtime.configuration.application import Application, config_hash, config_of, settings_of
from tidegate.runtime.configuration.changes import as_kept, check_changes, remembered
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.publishing import topics
from tidegate.runtime.publishing.publication import NoPublication, Publication
from tidegate.runtime.publishing.topics import Outlets, OutputRoute
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.state.delta_log.log_entries import check_log_exists, newest_version
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.port import Lake

lines = logging.getLogger("tidegate")


class Overtaken(Fenced):
    """The log proves that a newer driver owns the operator; no retry can help."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """The result of a claim.

    `config`: the configuration under which the log continues. `meta`: the metadata of the claim's commit.
    `publication`: the output side.
    """

    log: OperatorLog
    config: OperatorConfig
    meta: BatchMeta
    publication: Publication | NoPublication


class Claimant:
    """The claims of one driver on one operator: the first one, and another whenever an outcome is in doubt."""

    def __init__(
        self,
        application: Application,
        name: str,
        kafka: Callable[[], KafkaClient],
        *,
        deadline_s: float,
        environment: Environment = REAL,
        newest_in_database: NewestInDatabase = newest_in_database,
        follows: int | None = None,
        as_logged: bool = False,
        committed: Callable[[BatchMeta], None] = lambda claim: None,
    ) -> None:
        """`follows`: the newest epoch of other drivers that the first claim may follow; None: any. `as_logged`: the
        first claim continues under the configuration in the log, as a command may have changed it there.

        `committed` is called with the metadata of each claim as soon as it is in the log.
        """
        self._application, self._name, self._kafka, self._deadline_s = application, name, kafka, deadline_s
        self._environment, self._newest_in_database = environment, newest_in_database
        self._config = application.operators[name]
        self._follows, self._as_logged, self._committed = follows, as_logged, committed
        self._attempts: set[str] = set()
        self._log: OperatorLog
        self._newest: BatchMeta

    def reconfigure(self, application: Application) -> None:
        """Use this configuration from the next claim on."""
        self._application, self._config = application, application.operators[self._name]

    def claim(self) -> Claimed:
        """Claim the operator, fence older drivers, and publish all committed output that is not published yet.

        Raise Overtaken if another driver has claimed the operator since this driver's last claim.
        """
        known = self._newest.topics if self._attempts else {}
        found = preflight.find_topics(self._kafka(), self._config, known)
        starts = {topic: offsets.earliest(self._kafka(), topic) for topic in self._config.inputs}
        preflight.check_equal_partitions(self._config, found)
        # rule: no-second-log
        self._refuse_second_log(starts[self._config.input])
        self._log = self._open_log()
        before = self._log.newest() or first_meta(
            self._name,
            self._log.table_id,
            self._environment.clock.now_ms(),
            starts,
            log_format=self._log.format,
        )
        # rule: fenced-stops
        self._refuse_overtaken(before)
        self._newest = before
        preflight.check_topics(before, self._config, found)
        preflight.check_nothing_lost(before, starts)
        self._config = as_kept(before, self._logged(before))
        check_changes(before, self._config)
        # rule: former-output-first
        self._settle_former_outlets()
        wanted = topics.configured(self._config)
        # rule: claim-before-ids
        self._commit_claim(found.ids, wanted)
        return Claimed(log=self._log, config=self._config, meta=self._newest, publication=self._published_to(wanted))

    def _logged(self, before: BatchMeta) -> OperatorConfig:
        """Return the configuration in the log for the first claim of a standby, else that of the file."""
        # rule: takeover-keeps-applied
        if not self._as_logged or self._attempts or not before.settings:
            return self._config
        logged = config_of(before.settings)
        if config_hash(logged) != config_hash(self._config):
            line = "%s takes over under the configuration in the log; its own file differs: see tidegate plan"
            lines.warning(line, self._name, extra=log_fields(self._name))
        return logged

    def _open_log(self) -> OperatorLog:
        log = self._log_lake()
        if self._attempts:
            check_log_exists(log)
        schema = log_schema(columns_of(self._config))
        clock = self._environment.clock
        return OperatorLog.open(log, self._name, schema, create=not self._attempts, steps_change=True, clock=clock)

    def _log_lake(self) -> Lake:
        return self._environment.lake(self._application.lake / self._name)

    def _refuse_second_log(self, starts: Mapping[int, int]) -> None:
        log = self._log_lake()
        if not self._attempts and newest_version(log) is None:
            refuse_second_log(self._name, log.place, self._traces(starts))

    def _traces(self, starts: Mapping[int, int]) -> Iterator[str]:
        """Yield what an earlier run of the operator has left outside of the lake."""
        application, key = self._application, OperatorKey(self._application.application, self._name)
        # rule: no-second-log
        yield from traces_of_states(application.state / application.application, self._name)
        # rule: no-second-log
        yield from traces_in_database(self._newest_in_database(application.control_database, key))
        # rule: no-second-log
        yield from traces_in_kafka(self._kafka(), key, self._config.input, sorted(starts))

    def _refuse_overtaken(self, found: BatchMeta) -> None:
        """Raise Overtaken if a newer driver has claimed the operator.

        The newest claim may be one of this driver whose outcome was in doubt: then no other driver has taken over.
        """
        # rule: claim-follows-known-epoch
        known = self._newest.epoch if self._attempts else self._follows
        # rule: own-claim
        if known is not None and found.epoch > known and found.attempt not in self._attempts:
            raise Overtaken(
                f"a newer driver has claimed {self._name}; this one stops",
                value=f"epoch {found.epoch}, known {known}",
                remedy="do nothing if you meant to start the other driver; otherwise stop that one",
            )

    def _commit_claim(self, ids: dict[str, str], outlets_now: Outlets) -> None:
        former = topics.claimed(self._newest, self._config)
        claim = after_claim(
            self._newest,
            attempt=uuid4().hex,
            clock=self._environment.clock.now_ms(),
            config=config_hash(self._config),
            topics=ids,
            settings=settings_of(self._config),
        )
        known = remembered(self._newest, self._config)
        partitions = {p: replace(each, remembered_from=known.get(p)) for p, each in claim.partitions.items()}
        sinks = topics.sinks_of(outlets_now, self._newest, claim.batch)
        claim = replace(claim, dead_letters=outlets_now.dead_letters, partitions=partitions, sinks=sinks)
        if not {each.topic for each in outlets_now.outputs} <= {each.topic for each in former.outputs}:
            # rule: publish-from-configured
            claim = replace(claim, published_from=claim.batch)
        if outlets_now.dead_letters not in (None, former.dead_letters):
            # rule: publish-from-configured
            claim = replace(claim, dead_letters_from=claim.batch)
        self._attempts.add(claim.attempt)
        self._log.commit(claim, [])
        self._committed(claim)
        if self._newest.config not in ("", claim.config):
            reach("during_configuration_change")
        self._newest = claim
        # rule: kill-points
        reach("after_claim")

    def _settle_former_outlets(self) -> None:
        """Publish committed output to former topics, which the configuration no longer names in the same role.

        It runs under a claim that still names the former topics, so that a crash in between cannot lose track of them.
        """
        former = topics.claimed(self._newest, self._config)
        if topics.configured(self._config).lacks(former):
            self._commit_claim(self._newest.topics, former)
            self._published_to(former)

    def _published_to(self, wanted: Outlets) -> Publication | NoPublication:
        """Return the output side, after all committed output to these topics has been published."""
        route = route_of(self._application.application, self._name, self._config, wanted, self._kafka())
        if not wanted.topics:
            return NoPublication(route=route)
        publication = Publication(
            self._kafka,
            self._log,
            application=self._application.application,
            route=route,
            deadline_s=self._deadline_s,
            clock=self._environment.clock,
            in_parallel=self._environment.map_waiting,
        )
        try:
            publication.start(sorted(self._newest.partitions), self._newest)
        except StateError:  # for example a mark above this claim, written by a driver that has claimed since
            self._refuse_overtaken(self._open_log().newest() or self._newest)
            raise
        return publication


def route_of(application: str, name: str, config: OperatorConfig, wanted: Outlets, kafka: KafkaClient) -> OutputRoute:
    """Return how an operator publishes to these topics; the brokers are asked for the topics' limits."""
    return OutputRoute(
        operator=name,
        input=config.input,
        group=group_id(application, name),
        outlets=wanted,
        limits={topic: kafka.max_message_bytes(topic) for topic in wanted.topics},
        times_in_values=config.timestamp is not None,
    )
