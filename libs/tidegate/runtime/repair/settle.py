"""Settle output that may or may not have been published: a person decides, and the operator continues."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta, Outcome
from tidegate.contracts.errors import UserError
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.claim import route_of
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_settling
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.publishing import topics
from tidegate.runtime.publishing.publication import Publication
from tidegate.runtime.repair.logs import existing_log

DEADLINE_S = 60.0
"""Deadline for publishing, and for each request."""


class NothingUndecided(UserError):
    """There is nothing to settle: the marks and the topics show what was published."""


def settle(
    application: Application,
    name: str,
    *,
    published: bool,
    partitions: Collection[int] | None = None,
    environment: Environment = REAL,
) -> BatchMeta:
    """Treat the undecided output of the partitions (None: all) as published, or publish it; then write their marks.

    Return the metadata of the claim that records the decision. No driver should run meanwhile: the claim fences it.
    Raise NothingUndecided if there is no such output; StateError if a topic changed since the log was written.
    """
    config, kafka = application.operators[name], environment.kafka(application.kafka)
    log = existing_log(application, name, environment)
    newest = log.newest()
    wanted = topics.Outlets((), None) if newest is None else topics.claimed(newest, config)
    if newest is None or not wanted.topics:
        raise NothingUndecided("nothing was published yet", value=name, remedy="run the operator")
    preflight.check_topics(newest, config, preflight.find_topics(kafka, config, newest.topics))
    publication = Publication(
        lambda: kafka,
        log,
        application=application.application,
        route=route_of(application.application, name, config, wanted, kafka),
        deadline_s=DEADLINE_S,
        clock=environment.clock,
    )
    undecided = {
        p: batch for p, batch in publication.undecided(newest).items() if partitions is None or p in partitions
    }
    if not undecided:
        raise NothingUndecided("Kafka still knows what was published", value=name, remedy="run the operator")
    claim = after_claim(
        newest, attempt=uuid4().hex, clock=environment.clock.now_ms(), config=newest.config, topics=newest.topics
    )
    claim = after_settling(claim, undecided, Outcome.PUBLISHED if published else Outcome.UNPUBLISHED)
    # rule: absent-mark-person-decides/recorded
    log.commit(claim, [])
    publication.start(sorted(undecided), claim)
    publication.commit_offsets(claim)
    return claim
