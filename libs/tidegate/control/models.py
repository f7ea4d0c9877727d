"""The tables of the control database.

All tables but `instances` and `incidents` are derived from the operator logs and can be rebuilt from them; see
README.md. Times are milliseconds of the wall clock. Keys are names, so that a person can query without joins.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, ForeignKey, ForeignKeyConstraint, Index, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Long = Annotated[int, mapped_column(BigInteger)]
LongKey = Annotated[int, mapped_column(BigInteger, primary_key=True, autoincrement=False)]
Key = Annotated[str, mapped_column(primary_key=True)]

_CONSTRAINTS = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The base of all tables: it gives constraints the same names in every database."""

    metadata = MetaData(naming_convention=_CONSTRAINTS)


def _of_operator() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["application", "operator"], ["operators.application", "operators.operator"])


def _of_batch() -> ForeignKeyConstraint:
    names = ["application", "operator", "batch"]
    return ForeignKeyConstraint(names, [f"batches.{name}" for name in names], ondelete="CASCADE")


# Each table lists its columns in full, though some are alike: the list is the schema.


class Application(Base):
    """The application of a configuration file."""

    __tablename__ = "applications"

    application: Mapped[Key]
    lake: Mapped[str]


class Operator(Base):
    """An operator of an application."""

    __tablename__ = "operators"

    application: Mapped[str] = mapped_column(ForeignKey("applications.application"), primary_key=True)
    operator: Mapped[Key]
    kind: Mapped[str]


class Configuration(Base):
    """A configuration that an operator ran with from a batch on: its hash, and its settings as the log has them."""

    __tablename__ = "configurations"
    __table_args__ = (_of_operator(),)

    application: Mapped[Key]
    operator: Mapped[Key]
    since_batch: Mapped[LongKey]
    config: Mapped[str]
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    clock_ms: Mapped[Long]


class Batch(Base):
    """A batch of an operator. Counts are summed over all partitions; `held` is what is held after the batch."""

    __tablename__ = "batches"
    __table_args__ = (_of_operator(), Index(None, "clock_ms"))

    application: Mapped[Key]
    operator: Mapped[Key]
    batch: Mapped[LongKey]
    epoch: Mapped[Long]
    attempt: Mapped[str]
    action: Mapped[str]
    config: Mapped[str]
    clock_ms: Mapped[Long]
    partitions: Mapped[int]
    records_in: Mapped[Long]
    applied: Mapped[Long]
    superseded: Mapped[Long]
    late: Mapped[Long]
    rejected: Mapped[Long]
    emitted: Mapped[Long]
    held: Mapped[Long]
    held_bytes: Mapped[Long]


class Compaction(Base):
    """A compaction. `snapshot`: {partition: batch up to which its state was last rewritten in full}."""

    __tablename__ = "compactions"
    __table_args__ = (_of_batch(),)

    application: Mapped[Key]
    operator: Mapped[Key]
    batch: Mapped[LongKey]
    clock_ms: Mapped[Long]
    snapshot: Mapped[dict[str, int]] = mapped_column(JSON)


class Recovery(Base):
    """A partition whose local state had to be recovered before a batch, and the reason."""

    __tablename__ = "recoveries"
    __table_args__ = (_of_batch(),)

    application: Mapped[Key]
    operator: Mapped[Key]
    batch: Mapped[LongKey]
    partition: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    clock_ms: Mapped[Long]
    reason: Mapped[str]


class Instance(Base):
    """A driver of an operator in one process; the logs do not have it. `epoch`: that of its newest claim."""

    __tablename__ = "instances"
    __table_args__ = (_of_operator(), Index(None, "application", "operator", "heartbeat_ms"))

    instance: Mapped[Key]
    application: Mapped[str]
    operator: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int]
    epoch: Mapped[int | None] = mapped_column(BigInteger)
    state: Mapped[str]
    started_ms: Mapped[Long]
    heartbeat_ms: Mapped[Long]


class Incident(Base):
    """The end of a driver without a request: fenced, refused, stopped, bound reached. The logs do not have it."""

    __tablename__ = "incidents"
    __table_args__ = (_of_operator(),)

    application: Mapped[Key]
    operator: Mapped[Key]
    clock_ms: Mapped[LongKey]
    kind: Mapped[str]
    reason: Mapped[str]
