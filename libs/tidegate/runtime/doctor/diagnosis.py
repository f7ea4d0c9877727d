"""Runs all checks of an application, one after the other.

What cannot be read, such as an unreachable broker or a damaged log, is itself a finding; the checks that need it are
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from tidegate.contracts.errors import TidegateError
from tidegate.runtime import clock
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import instances, lake, machine, states, topics
from tidegate.runtime.doctor.findings import Finding, Findings, of_error
from tidegate.runtime.kafka.inspection import Cluster

Check = Callable[[], Findings]


def diagnose(application: Application, tell: Callable[[str], None] = lambda what: None) -> list[Finding]:
    """Return everything that is wrong in the application's environment; call `tell` with what is checked next."""
    return [finding for check in _checks(application, tell) for finding in check()]


def _checks(application: Application, tell: Callable[[str], None]) -> Iterator[Check]:
    tell("this machine")
    yield from _of(machine.CHECKS, [machine.look()])
    tell("the lake and its logs")
    logs = lake.look_at_logs(application)
    yield from _of(lake.DISK_CHECKS, lake.look_at_disks(application))
    yield from _of([lake.log_is_there], lake.look_for_lost_logs(application))
    yield from _of(lake.CHECKS, logs.values())
    tell("the broker and its topics")
    yield from _kafka_checks(application, logs)
    tell("local states and drivers")
    tables = {name: log.newest.table_id for name, log in logs.items() if log.newest is not None}
    yield from _of(states.CHECKS, states.look(application, tables))
    if (address := application.control_database) is not None:
        control = instances.look(address, application.application, application.operators, clock.now_ms())
        yield from _of(instances.CHECKS, [] if control is None else [control])


def _of(checks: Sequence[Callable[..., Findings]], seen: Iterable[object]) -> Iterator[Check]:
    return (partial(check, each) for each in seen for check in checks)


def _kafka_checks(application: Application, logs: Mapping[str, lake.Log]) -> Iterator[Check]:
    cluster = topics.look(application.kafka, application.operators)
    if isinstance(cluster, TidegateError):
        yield partial(iter, [of_error("kafka", cluster)])
        return
    yield from _of(topics.CLUSTER_CHECKS, [cluster])
    between = [_between(application, name, cluster, logs) for name in application.operators]
    yield from _of(topics.CHECKS, between)
    for each in between:
        if (read := each.config.reads()) is not None:
            of_table = cluster.topics.get(application.operators[read.table].input)
            yield partial(topics.table_has_as_many_partitions, each, of_table)


def _between(application: Application, name: str, cluster: Cluster, logs: Mapping[str, lake.Log]) -> topics.Between:
    return topics.Between(
        name=name,
        config=application.operators[name],
        topics=cluster.topics,
        newest=logs[name].newest if name in logs else None,
        now_ms=clock.now_ms(),
    )
