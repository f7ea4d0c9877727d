"""The control database: applications, operators, the contents of their logs, instances and incidents."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

OPERATOR = ["application", "operator"]
BATCH = [*OPERATOR, "batch"]
COUNTS = ["records_in", "applied", "superseded", "late", "rejected", "emitted", "held", "held_bytes"]


def upgrade() -> None:
    """Create all tables."""
    _table("applications", ["application"], [_text("application"), _text("lake")])
    _table("operators", OPERATOR, [*map(_text, OPERATOR), _text("kind")], of="applications", by=["application"])
    since = [_long("since_batch"), _text("config"), _json("settings"), _long("clock_ms")]
    _table("configurations", [*OPERATOR, "since_batch"], [*map(_text, OPERATOR), *since], of="operators", by=OPERATOR)
    _batches()
    _of_batches()
    _instances()
    ended = [_long("clock_ms"), _text("kind"), _text("reason")]
    _table("incidents", [*OPERATOR, "clock_ms"], [*map(_text, OPERATOR), *ended], of="operators", by=OPERATOR)


def downgrade() -> None:
    """Drop all tables."""
    for table in ("incidents", "instances", "recoveries", "compactions", "batches", "configurations"):
        op.drop_table(table)
    op.drop_table("operators")
    op.drop_table("applications")


def _batches() -> None:
    made = [_long("batch"), _long("epoch"), _text("attempt"), _text("action"), _text("config"), _long("clock_ms")]
    counts = [_integer("partitions"), *map(_long, COUNTS)]
    _table("batches", BATCH, [*map(_text, OPERATOR), *made, *counts], of="operators", by=OPERATOR)
    op.create_index("ix_batches_clock_ms", "batches", ["clock_ms"])


def _of_batches() -> None:
    compacted = [_long("batch"), _long("clock_ms"), _json("snapshot")]
    _table("compactions", BATCH, [*map(_text, OPERATOR), *compacted], of="batches", by=BATCH, ondelete="CASCADE")
    recovered = [*map(_text, OPERATOR), _long("batch"), _integer("partition"), _long("clock_ms"), _text("reason")]
    _table("recoveries", [*BATCH, "partition"], recovered, of="batches", by=BATCH, ondelete="CASCADE")


def _instances() -> None:
    who = [_text("instance"), *map(_text, OPERATOR), _text("host"), _integer("pid")]
    epoch = sa.Column("epoch", sa.BigInteger(), nullable=True)
    told = [epoch, _text("state"), _long("started_ms"), _long("heartbeat_ms")]
    _table("instances", ["instance"], [*who, *told], of="operators", by=OPERATOR)
    op.create_index("ix_instances_application_operator_heartbeat_ms", "instances", [*OPERATOR, "heartbeat_ms"])


def _table(
    name: str, key: list[str], columns: list[Any], *, of: str = "", by: list[str] | None = None, **more: str
) -> None:
    """Create the table with its primary key, and with a foreign key from the columns `by` to the table `of`."""
    constraints: list[Any] = [sa.PrimaryKeyConstraint(*key, name=f"pk_{name}")]
    if by is not None:
        there = [f"{of}.{column}" for column in by]
        constraints.append(sa.ForeignKeyConstraint(by, there, name=f"fk_{name}_{of}", **more))  # type: ignore[arg-type]
    op.create_table(name, *columns, *constraints)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=False)


def _long(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(), nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)
