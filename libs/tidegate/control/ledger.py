"""The rows of the control database that come from an operator's log.

Each function works in the transaction of its connection. Who writes about an operator locks the operator's row first,
so that there is one writer at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select, update

from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.control.database import insert
from tidegate.control.models import (
    Application,
    Batch,
    Compaction,
    Configuration,
    Incident,
    Instance,
    Operator,
    Recovery,
)

_COUNTED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")
_HELD = ("held", "held_bytes")


class OperatorKey(NamedTuple):
    """The names of an application and of one of its operators."""

    application: str
    operator: str


class Known(NamedTuple):
    """The newest batch of an operator in the database."""

    batch: int
    attempt: str


def upsert_operator(connection: Connection, key: OperatorKey, *, lake: str, kind: str) -> None:
    """Insert or update the application and the operator, which locks the operator's row."""
    application = insert(connection, Application).values(application=key.application, lake=lake)
    operator = insert(connection, Operator).values(**key._asdict(), kind=kind)
    connection.execute(application.on_conflict_do_update(index_elements=["application"], set_={"lake": lake}))
    connection.execute(operator.on_conflict_do_update(index_elements=list(key._fields), set_={"kind": kind}))


def lock_and_read_newest(connection: Connection, key: OperatorKey) -> Known | None:
    """Lock the operator's row and return its newest batch; None if it has none."""
    connection.execute(_of(select(Operator), Operator, key).with_for_update())
    found = _of(select(Batch.batch, Batch.attempt), Batch, key).order_by(Batch.batch.desc()).limit(1)
    row = connection.execute(found).first()
    return None if row is None else Known(*row)


def record(connection: Connection, key: OperatorKey, metas: Sequence[BatchMeta]) -> None:
    """Insert the batches as their metadata describes them; they must follow those in the database."""
    names = key._asdict()
    _add(connection, Batch, [names | _batch(meta) for meta in metas])
    _add(connection, Compaction, [names | _compaction(meta) for meta in metas if meta.action == "compaction"])
    _add(connection, Recovery, [names | recovery for meta in metas for recovery in _recoveries(meta)])
    _add(connection, Configuration, [names | change for change in _changes(_config_of(connection, key), metas)])


def forget(connection: Connection, key: OperatorKey) -> None:
    """Delete everything that comes from the operator's log."""
    connection.execute(_of(delete(Configuration), Configuration, key))
    connection.execute(_of(delete(Batch), Batch, key))


def forget_before(connection: Connection, key: OperatorKey, batch: int) -> None:
    """Delete what the operator's log no longer has: everything from before that batch.

    Instances and incidents from before that batch are deleted, too.
    """
    if not connection.execute(_of(delete(Batch), Batch, key).where(Batch.batch < batch)).rowcount:
        return
    clock_ms = connection.scalar(_of(select(Batch.clock_ms), Batch, key).where(Batch.batch == batch))
    if clock_ms is not None:
        _begin_configurations_at(connection, key, batch, clock_ms)
        connection.execute(_of(delete(Instance), Instance, key).where(Instance.heartbeat_ms < clock_ms))
        connection.execute(_of(delete(Incident), Incident, key).where(Incident.clock_ms < clock_ms))


def _begin_configurations_at(connection: Connection, key: OperatorKey, batch: int, clock_ms: int) -> None:
    """Move the beginning of the configuration in effect at the batch to the batch, and delete older ones."""
    since = _of(select(Configuration.since_batch), Configuration, key).where(Configuration.since_batch <= batch)
    in_force = connection.scalar(since.order_by(Configuration.since_batch.desc()).limit(1))
    if in_force is not None:
        connection.execute(_of(delete(Configuration), Configuration, key).where(Configuration.since_batch < in_force))
        moved = _of(update(Configuration), Configuration, key).where(Configuration.since_batch == in_force)
        connection.execute(moved.values(since_batch=batch, clock_ms=clock_ms))


def _of(statement: Any, table: Any, key: OperatorKey) -> Any:
    return statement.where(table.application == key.application, table.operator == key.operator)


def _add(connection: Connection, table: type[Any], rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(connection, table), rows)


def _config_of(connection: Connection, key: OperatorKey) -> str | None:
    """Return the hash of the operator's newest configuration; None if there is none."""
    found = _of(select(Configuration.config), Configuration, key).order_by(Configuration.since_batch.desc()).limit(1)
    config: str | None = connection.scalar(found)
    return config


def _changes(config: str | None, metas: Iterable[BatchMeta]) -> Iterable[dict[str, Any]]:
    for meta in metas:
        if meta.config != config:
            config = meta.config
            settings = {"config": config, "settings": meta.settings}
            yield {"since_batch": meta.batch, "clock_ms": meta.clock, **settings}


def _batch(meta: BatchMeta) -> dict[str, Any]:
    return {
        "batch": meta.batch,
        "epoch": meta.epoch,
        "attempt": meta.attempt,
        "action": meta.action,
        "config": meta.config,
        "clock_ms": meta.clock,
        "partitions": len(meta.changed),
        **_sums(_COUNTED, (change.counts for change in meta.changed.values())),
        **_sums(_HELD, (known.totals for known in meta.partitions.values())),
    }


def _sums(names: Sequence[str], counts: Iterable[Counts]) -> dict[str, int]:
    counted = list(counts)
    return {name: sum(getattr(each, name) for each in counted) for name in names}


def _compaction(meta: BatchMeta) -> dict[str, Any]:
    rewritten = {partition: known.snapshot_batch for partition, known in meta.partitions.items()}
    snapshot = {str(partition): batch for partition, batch in rewritten.items() if batch >= 0}
    return {"batch": meta.batch, "clock_ms": meta.clock, "snapshot": snapshot}


def _recoveries(meta: BatchMeta) -> list[dict[str, Any]]:
    return [
        {"batch": meta.batch, "partition": partition, "clock_ms": meta.clock, "reason": change.recovered}
        for partition, change in meta.changed.items()
        if change.recovered is not None
    ]
