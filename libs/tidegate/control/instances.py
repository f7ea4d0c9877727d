"""Which drivers run an operator, and how drivers have ended: facts that no operator log has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from tidegate.control.database import insert
from tidegate.control.ledger import OperatorKey
from tidegate.control.models import Incident, Instance


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """A heartbeat of a driver, with its state."""

    instance: str
    host: str
    pid: int
    epoch: int | None
    state: str
    started_ms: int
    heartbeat_ms: int


@dataclass(frozen=True, kw_only=True)
class DriverEnd:
    """The end of a driver without a request. `kind`: the state of its condition, such as fenced."""

    clock_ms: int
    kind: str
    reason: str


def record_heartbeat(connection: Connection, key: OperatorKey, entry: Heartbeat) -> None:
    """Insert the driver's instance, or update it to this heartbeat."""
    row = insert(connection, Instance).values(**key._asdict(), **vars(entry))
    connection.execute(row.on_conflict_do_update(index_elements=["instance"], set_=vars(entry)))


def record_incident(connection: Connection, key: OperatorKey, entry: DriverEnd) -> None:
    """Insert the incident, unless it is recorded already."""
    row = insert(connection, Incident).values(**key._asdict(), **vars(entry))
    connection.execute(row.on_conflict_do_nothing())


def heartbeats(connection: Connection, application: str) -> Sequence[Any]:
    """Return the instances of the application, the most recent heartbeat first."""
    found = select(Instance.__table__).where(Instance.application == application)
    return connection.execute(found.order_by(Instance.heartbeat_ms.desc())).all()


def incidents(connection: Connection, application: str, most: int) -> Sequence[Any]:
    """Return at most `most` incidents of the application's operators, the newest first."""
    found = select(Incident.__table__).where(Incident.application == application)
    return connection.execute(found.order_by(Incident.clock_ms.desc()).limit(most)).all()
