"""What is wrong around an application, with its remedy: those checks of `tidegate doctor` that only read little.

Checks that ask a broker, list a whole log or try to write are left to the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.extras import MissingExtra
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import current_driver, instances, lake, states
from tidegate.runtime.doctor.findings import Finding, Findings, of_error
from tidegate.runtime.doctor.status import LogReader

NEWEST_INCIDENTS = 10


def findings(logs: LogReader) -> list[Finding]:
    """Return what is wrong with disks, logs, local states and drivers, and in the control database if there is one."""
    application = logs.application
    found = [log for name in application.operators if (log := _log(logs, name)) is not None]
    tables = {log.name: log.newest.table_id for log in found if log.newest is not None}
    return [
        *_found(lake.DISK_CHECKS, lake.collect_disks(application)),
        *_found(lake.CHECKS, found),
        *_found(states.CHECKS, states.collect(application, tables)),
        *_found(current_driver.CHECKS, current_driver.collect(application)),
        *_of_control(application),
    ]


def _log(logs: LogReader, name: str) -> lake.Log | None:
    """Return the facts about an operator's log that follow from its newest version; None if there is no log."""
    place = logs.application.lake / name
    try:
        if (log := logs.newest(name)) is None:
            return None
        facts: dict[str, Any] = {"newest": log.newest(), "size": log.size, "entries": log.entries_since_checkpoint}
        return lake.Log(name=name, place=place, now_ms=SYSTEM_CLOCK.now_ms(), **facts)
    except TidegateError as error:
        return lake.Log(name=name, place=place, wrong=error)


def _of_control(application: Application) -> Iterator[Finding]:
    address = application.control_database
    if address is None:
        return
    try:
        control = instances.collect(address, application.application, application.operators, SYSTEM_CLOCK.now_ms())
    except MissingExtra as error:  # the console can do without it
        yield of_error("control", error)
        return
    yield from _found(instances.CHECKS, [] if control is None else [control])


def incidents(application: Application) -> list[instances.Incident]:
    """Return the newest incidents of the control database; none if it does not answer, which the findings say."""
    address = application.control_database
    if address is None:
        return []
    try:
        return instances.incidents_of(address, application.application, NEWEST_INCIDENTS)
    except TidegateError:
        return []


def _found(checks: Sequence[Callable[..., Findings]], facts: Iterable[object]) -> Iterator[Finding]:
    return (finding for each in facts for check in checks for finding in check(each))
