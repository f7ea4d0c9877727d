"""Runs all checks of an application, one after the other.

What cannot be read, such as an unreachable broker or a damaged log, is itself a finding; the checks that need it are
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import current_driver, instances, lake, machine, object_stores, states, topics
from tidegate.runtime.doctor.findings import Finding, Findings, of_error
from tidegate.runtime.kafka.inspection import Cluster
from tidegate.runtime.publishing.topics import configured

Check = Callable[[], Findings]


def diagnose(application: Application, progress: Callable[[str], None] = lambda what: None) -> list[Finding]:
    """Return everything that is wrong in the application's environment; call `progress` with what is checked next."""
    return [finding for check in _checks(application, progress) for finding in check()]


def _checks(application: Application, progress: Callable[[str], None]) -> Iterator[Check]:
    progress("this machine")
    yield from _of(machine.CHECKS, [machine.collect()])
    progress("the lake and its logs")
    logs = lake.collect_logs(application)
    yield from _of(lake.DISK_CHECKS, lake.collect_disks(application))
    yield from _of(object_stores.STORE_CHECKS, object_stores.collect_probe(application.lake))
    yield from _of([lake.log_is_there], lake.collect_lost_logs(application))
    yield from _of(lake.CHECKS, logs.values())
    progress("the broker and its topics")
    yield from _kafka_checks(application, logs)
    progress("local states and drivers")
    tables = {name: log.newest.table_id for name, log in logs.items() if log.newest is not None}
    yield from _of(states.CHECKS, states.collect(application, tables))
    yield from _of(current_driver.CHECKS, current_driver.collect(application))
    if (address := application.control_database) is not None:
        control = instances.collect(address, application.application, application.operators, SYSTEM_CLOCK.now_ms())
        yield from _of(instances.CHECKS, [] if control is None else [control])


def _of(checks: Sequence[Callable[..., Findings]], facts: Iterable[object]) -> Iterator[Check]:
    return (partial(check, each) for each in facts for check in checks)


def _kafka_checks(application: Application, logs: Mapping[str, lake.Log]) -> Iterator[Check]:
    cluster = topics.collect(application.kafka, application.operators)
    if isinstance(cluster, TidegateError):
        yield partial(iter, [of_error("kafka", cluster)])
        return
    yield from _of(topics.CLUSTER_CHECKS, [cluster])
    by_keys = {
        topic: partitions
        for config in application.operators.values()
        for topic, partitions in configured(config).partitions.items()
    }
    operators = [_operator_topics(application, name, cluster, logs, by_keys) for name in application.operators]
    yield from _of(topics.CHECKS, operators)
    for each in operators:
        for read in each.config.reads():
            of_table = cluster.topics.get(application.operators[read.table].input)
            yield partial(topics.table_has_as_many_partitions, each, of_table)


def _operator_topics(
    application: Application,
    name: str,
    cluster: Cluster,
    logs: Mapping[str, lake.Log],
    by_keys: Mapping[str, int],
) -> topics.OperatorTopics:
    return topics.OperatorTopics(
        name=name,
        config=application.operators[name],
        topics=cluster.topics,
        newest=logs[name].newest if name in logs else None,
        now_ms=SYSTEM_CLOCK.now_ms(),
        by_keys=by_keys,
    )
