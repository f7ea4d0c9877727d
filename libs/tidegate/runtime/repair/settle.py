"""Going on where nothing tells whether the newest output was published, when a person has said what became of it."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from tidegate.contracts.errors import UserError
from tidegate.contracts.naming import log_path
from tidegate.contracts.schema import BatchMeta, log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime import clock
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.claim import publication_of
from tidegate.runtime.batch_loop.metadata import after_claim, after_settling
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.kafka.client import client
from tidegate.runtime.publishing import topics
from tidegate.state.delta_log.operator_log import OperatorLog

DEADLINE_S = 60.0
"""How long publishing, and each request, may take."""


class NothingUndecided(UserError):
    """The marks and the topics tell what was published."""


def settle(
    application: Application, name: str, *, published: bool, partitions: Collection[int] | None = None
) -> BatchMeta:
    """Take the undecided output of the partitions (None: all) for published, or publish it, and write their marks.

    Gives the claim that records it. No driver may run meanwhile: the claim fences it. NothingUndecided when there is no
    such output; StateError when the topics are not those of the log.
    """
    config, kafka = application.operators[name], client(application.kafka)
    log = OperatorLog.open(
        log_path(application.lake, name), name, log_schema(operator_for(config).columns), create=False
    )
    newest = log.newest()
    wanted = topics.Outlets(None, None) if newest is None else topics.claimed(newest, config.input)
    if newest is None or not wanted.topics:
        raise NothingUndecided("nothing was published yet", value=name, remedy="run the operator")
    preflight.check_topics(newest, config, preflight.find_topics(kafka, config, newest.topics))
    publication = publication_of(application, name, lambda: kafka, log, wanted, DEADLINE_S)
    undecided = {
        p: batch for p, batch in publication.undecided(newest).items() if partitions is None or p in partitions
    }
    if not undecided:
        raise NothingUndecided("marks and topics tell what was published", value=name, remedy="run the operator")
    claim = after_claim(newest, attempt=uuid4().hex, clock=clock.now_ms(), config=newest.config, topics=newest.topics)
    claim = after_settling(claim, undecided, published=published)
    log.commit(claim, [])
    publication.start(sorted(undecided), claim)
    publication.show(claim)
    return claim
