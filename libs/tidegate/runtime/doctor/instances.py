"""Checks the control database, and the drivers that are registered in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from tidegate.contracts.errors import TidegateError
from tidegate.control import revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import heartbeats, incidents
from tidegate.runtime.control_sync.recording import HEARTBEAT_S
from tidegate.runtime.doctor.findings import Finding, Findings, of_error, roughly

STALE_AFTER_MS = int(6 * HEARTBEAT_S * 1_000)
"""A driver without a heartbeat for this long is taken for dead."""

_DRIVING = ("starting", "running", "waiting")


class Instance(NamedTuple):
    """A driver process as of its last heartbeat."""

    operator: str
    host: str
    pid: int
    state: str
    started_ms: int
    heartbeat_ms: int


class Incident(NamedTuple):
    """A driver that ended without a request. `kind`: how, such as fenced."""

    operator: str
    clock_ms: int
    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control database: its schema revision, the one that this program needs, and the drivers of the application's
    operators, newest heartbeat first. `wrong`: why the database cannot be queried."""

    redacted_url: str
    now_ms: int
    revision: str | None = None
    needed: str = ""
    instances: Sequence[Instance] = ()
    wrong: TidegateError | None = None


def collect(address: Address, application: str, operators: Collection[str], now_ms: int) -> Control | None:
    """Read the control database, with the application's drivers of these operators.

    None if it is a SQLite file that no service has created yet.
    """
    if address.kind == "sqlite" and not address.file.exists():
        return None
    database = Database(address)
    try:
        revision, needed = revisions.current(database), revisions.newest()
        found = _instances(database, application, operators) if revision == needed else []
    except TidegateError as error:
        return Control(redacted_url=address.redacted_url, now_ms=now_ms, wrong=error)
    return Control(redacted_url=address.redacted_url, now_ms=now_ms, revision=revision, needed=needed, instances=found)


def _instances(database: Database, application: str, operators: Collection[str]) -> list[Instance]:
    with database.begin() as connection:
        rows: Sequence[Any] = heartbeats(connection, application)
    found = (Instance(*(getattr(row, name) for name in Instance._fields)) for row in rows)
    return [each for each in found if each.operator in operators]


def incidents_of(address: Address, application: str, most: int) -> list[Incident]:
    """Return how drivers of the application have ended without a request, at most `most`, the newest first.

    None are known if there is no database yet, or if it has another revision; `collect` says so.
    """
    if address.kind == "sqlite" and not address.file.exists():
        return []
    database = Database(address)
    if revisions.current(database) != revisions.newest():
        return []
    with database.begin() as connection:
        rows = incidents(connection, application, most)
    return [Incident(*(getattr(row, name) for name in Incident._fields)) for row in rows]


def database_answers(control: Control) -> Findings:
    """Check that the database can be queried."""
    if control.wrong is not None:
        yield of_error("control", control.wrong)


def database_has_its_revision(control: Control) -> Findings:
    """Check that the database has the schema revision that this program needs."""
    if control.wrong is None and control.revision not in (None, control.needed):
        shown = f"{control.revision}, not {control.needed}, in {control.redacted_url}"
        problem = "the control database has a different revision than this program needs"
        yield Finding(about="control", problem=problem, value=shown, remedy="run tidegate db upgrade FILE")


def drivers_live(control: Control) -> Findings:
    """Check that the newest driver of each operator, unless it has ended, still sends heartbeats."""
    by_operator = groupby(sorted(control.instances, key=lambda each: each.operator), key=lambda each: each.operator)
    for operator, instances in by_operator:
        newest = max(instances, key=lambda each: each.heartbeat_ms)
        silent_ms = control.now_ms - newest.heartbeat_ms
        if newest.state in _DRIVING and silent_ms > STALE_AFTER_MS:
            shown = f"process {newest.pid} on {newest.host}, {newest.state}, silent for {roughly(silent_ms)}"
            remedy = f"check whether process {newest.pid} is running on {newest.host}; if not, start the service again"
            yield Finding(about=operator, problem="a driver sends no heartbeats", value=shown, remedy=remedy)


def drivers_are_alone(control: Control) -> Findings:
    """Check that no operator has two live drivers at once: each would fence the other.

    A driver without a heartbeat since its successor started, such as one killed a moment ago, does not count.
    """
    driving = [each for each in control.instances if each.state in _DRIVING]
    for operator in sorted({each.operator for each in driving}):
        instances = [each for each in driving if each.operator == operator]
        since = max(control.now_ms - STALE_AFTER_MS, *(each.started_ms for each in instances))
        places = [f"process {each.pid} on {each.host}" for each in instances if each.heartbeat_ms >= since]
        if len(places) > 1:
            remedy = "stop all but one: the newest fences the others"
            problem = "several drivers of one operator are running"
            yield Finding(about=operator, problem=problem, value=", ".join(places), remedy=remedy)


CHECKS: Sequence[Callable[[Control], Findings]] = (
    database_answers,
    database_has_its_revision,
    drivers_live,
    drivers_are_alone,
)
