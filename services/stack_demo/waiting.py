"""Waiting until services in other processes have finished their work."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidegate.contracts.errors import EngineError, TidegateError
from tidegate.contracts.naming import group_id
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.offsets import committed_offsets, latest
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake

WITHIN_S = 600.0
_EVERY_S = 1.0


def wait_for(application: Application, operators: Iterable[str]) -> None:
    """Wait until the operators have committed and published their whole input. Raise EngineError after ten minutes."""
    deadline = time.monotonic() + WITHIN_S
    behind = list(operators)
    while behind := [name for name in behind if not _has_arrived(application, name)]:
        if time.monotonic() > deadline:
            remedy = "see `docker-compose ps` and the logs of their containers"
            raise EngineError("services have not done their work", value=", ".join(behind), remedy=remedy)
        time.sleep(_EVERY_S)


def _has_arrived(application: Application, name: str) -> bool:
    """Return True if the operator has committed and published its input; False also if broker or log is away."""
    try:
        return _is_committed(application, name) and _is_published(application, name)
    except TidegateError:
        return False


def _is_committed(application: Application, name: str) -> bool:
    log, topics = open_lake(application.lake / name), application.operators[name].inputs
    newest = LogVersion.at(log, None).newest() if has_version(log, None) else None
    return newest is not None and newest.read_to == {
        topic: latest(client(application.kafka), topic) for topic in topics
    }


def _is_published(application: Application, name: str) -> bool:
    """Return True if the committed offset of each partition is at the end of the input.

    The offset is committed in the same transaction as the output.
    """
    operator = application.operators[name]
    if not operator.outputs():
        return True
    ends = latest(client(application.kafka), operator.input)
    committed = committed_offsets(
        client(application.kafka), group_id(application.application, name), operator.input, sorted(ends)
    )
    return all(mark is not None and mark.offset == ends[partition] for partition, mark in committed.items())
