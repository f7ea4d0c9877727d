"""Writes what drivers have to record to the control database, and catches up on batches that it has missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import TidegateError
from tidegate.control import instances, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import DriverEnd, Heartbeat
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync.backfill import append, catch_up


@dataclass(frozen=True, kw_only=True)
class News:
    """What is to be recorded of one driver: its newest batches, in order, its heartbeat and its incidents."""

    application: Application
    name: str
    metas: Sequence[BatchMeta]
    heartbeat: Heartbeat
    incidents: Sequence[DriverEnd]

    @property
    def key(self) -> OperatorKey:
        """Return the operator's key in the database."""
        return OperatorKey(self.application.application, self.name)


class Writer:
    """The writer of a process's entries in one control database. After a failure the next call makes up for it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._database: Database | None = None
        self._followed: set[OperatorKey] = set()

    def write(self, news: Sequence[News]) -> dict[str, TidegateError]:
        """Write heartbeats, incidents and batches in one transaction, and catch up on batches that were missed.

        Return the error of each operator whose log could not be read; nothing of it is recorded. Any other failure is
        raised, and the next call connects again and catches up on all operators.
        """
        database, self._database = self._database or self._opened(), None
        failures = self._catch_up(database, [each for each in news if each.key not in self._followed])
        followed = [each for each in news if each.key in self._followed]
        with database.begin() as connection:
            for each in followed:
                instances.record_heartbeat(connection, each.key, each.heartbeat)
                for incident in each.incidents:
                    instances.record_incident(connection, each.key, incident)
            behind = [each for each in followed if not append(connection, each.key, each.metas) or _drops(each)]
        failures |= self._catch_up(database, behind)
        self._database = database
        return failures

    def _opened(self) -> Database:
        """Connect to the database, and create its tables if they are missing."""
        self._followed.clear()
        database = Database(self._address)
        revisions.prepare(database)
        return database

    def _catch_up(self, database: Database, news: Sequence[News]) -> dict[str, TidegateError]:
        failures: dict[str, TidegateError] = {}
        for each in news:
            self._followed.discard(each.key)
            try:
                catch_up(database, each.application, each.name)
                self._followed.add(each.key)
            except TidegateError as error:
                failures[each.name] = error
        return failures


def _drops(news: News) -> bool:
    """Return whether the log may have dropped old batches, as a compaction does."""
    return any(meta.action == "compaction" for meta in news.metas)
