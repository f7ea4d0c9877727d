"""Backfill of the control database from the operator logs.

The logs are the source of truth: entries of the database that differ are deleted and written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.control import ledger
from tidegate.control.database import Database
from tidegate.control.ledger import Known, OperatorKey
from tidegate.runtime.configuration.application import Application
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import gapless_range, has_version, metas_of
from tidegate.state.lake.opening import open_lake

TOGETHER = 5_000
"""How many batches are read and written at once, which bounds the memory."""


def log_of(application: Application, name: str) -> LogVersion | None:
    """Return the operator's log at its newest version; None if it has no log."""
    log = open_lake(application.lake / name)
    return LogVersion.at(log, None) if has_version(log, None) else None


def catch_up(database: Database, application: Application, name: str) -> None:
    """Make the operator's batches in the database equal to those of its log.

    Batches that the database has already are not written again, unless the log contradicts them.
    """
    key, log = OperatorKey(application.application, name), log_of(application, name)
    batches = range(0) if log is None else gapless_range(log)
    with database.begin() as connection:
        _enter(connection, key, application)
        known = ledger.lock_and_read_newest(connection, key)
        if known is None or log is None or not _has(log, batches, known):
            ledger.forget(connection, key)
        else:
            ledger.forget_before(connection, key, batches.start)
            batches = range(known.batch + 1, batches.stop)
    for metas in _parts(log, batches):
        with database.begin() as connection:
            _record_new(connection, key, metas, ledger.lock_and_read_newest(connection, key))


def append(connection: Connection, key: OperatorKey, metas: Sequence[BatchMeta]) -> bool:
    """Write the batches, given in order. Write none and return False if a batch before one of them is missing."""
    known = ledger.lock_and_read_newest(connection, key)
    following = None if known is None else known.batch + 1
    for meta in metas:
        if following is None or meta.batch > following:
            return False
        following = max(following, meta.batch + 1)
    _record_new(connection, key, metas, known)
    return True


def _record_new(connection: Connection, key: OperatorKey, metas: Sequence[BatchMeta], known: Known | None) -> None:
    ledger.record(connection, key, [meta for meta in metas if known is None or meta.batch > known.batch])


def rebuild(database: Database, application: Application, name: str) -> int:
    """Write all of the operator's batches to the database again, from its log; return their number.

    All are written in one transaction: other connections see either the earlier or the new entries.
    """
    key, log = OperatorKey(application.application, name), log_of(application, name)
    batches = range(0) if log is None else gapless_range(log)
    with database.begin() as connection:
        _enter(connection, key, application)
        ledger.forget(connection, key)
        for metas in _parts(log, batches):
            ledger.record(connection, key, metas)
    return len(batches)


def _enter(connection: Connection, key: OperatorKey, application: Application) -> None:
    kind = application.operators[key.operator].kind
    ledger.upsert_operator(connection, key, lake=str(application.lake), kind=kind)


def _has(log: LogVersion, batches: range, known: Known) -> bool:
    """Return whether the log has this batch, by number and attempt. A log that was restored or re-created does not."""
    if known.batch not in batches:
        return False
    [meta] = metas_of(log, range(known.batch, known.batch + 1))
    return meta.attempt == known.attempt


def _parts(log: LogVersion | None, batches: range) -> Iterator[list[BatchMeta]]:
    """Yield the metadata of the batches in order, in lists of at most TOGETHER."""
    if log is not None:
        for start in range(batches.start, batches.stop, TOGETHER):
            yield metas_of(log, range(start, min(start + TOGETHER, batches.stop)))
