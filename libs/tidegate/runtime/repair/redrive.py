"""Sending refused records back: which ones, and each partition's in one Kafka transaction.

The log is read and never written; its service may run meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import TidegateError, UserError
from tidegate.contracts.naming import HEADER_REDRIVEN, log_path, redrive_group_id, redrive_transactional_id
from tidegate.contracts.records import UNREADABLE_BATCH
from tidegate.kernels.record_format.record_batch import OutgoingColumns, decode_headers, encode_headers
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.offsets import marks
from tidegate.runtime.kafka.transactions import Producer, commit_offset, end, initialise, send_emissions
from tidegate.runtime.publishing.dead_letters import written_timestamps
from tidegate.runtime.repair.redriven import (
    Place,
    Redriven,
    Run,
    format_mark,
    really_sent,
)
from tidegate.state.batch_metadata import has_version
from tidegate.state.delta_log.operator_log import OperatorLog

DEADLINE_S = 60.0
TIMEOUT_MS = 180_000
"""The transaction of a redrive that was killed is aborted after this; so long readers wait before it."""

RefusedKind = Literal["late", "rejected"]
_COLUMNS = ["partition", "offset", "key", "value", "headers", "timestamp", "cause"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which refused records are meant; what is left out means all. Event times in [since, until), ms."""

    kind: RefusedKind | None = None
    causes: tuple[str, ...] = ()
    partition: int | None = None
    since: int | None = None
    until: int | None = None
    key: bytes | None = None


class Reason(NamedTuple):
    """How many of the chosen records were refused for that, and how many of them had been sent back before."""

    kind: str
    cause: str
    records: int
    before: int


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """What is to be sent where. `rows`: with the columns of the log, and kind; `reasons`: of all that was chosen."""

    to: str
    rows: pa.Table
    reasons: tuple[Reason, ...]


def chosen(rows: pa.Table, choice: Choice) -> pa.Table:
    """The rows that are meant; those without an event time are in no range of times.

    A row that stands for a record batch which could not be read has no record to send.
    """
    wanted = ~pc.starts_with(pc.field("cause"), UNREADABLE_BATCH)
    if choice.causes:
        wanted &= pc.field("cause").isin(choice.causes)
    if choice.since is not None:
        wanted &= pc.field("timestamp") >= choice.since
    if choice.until is not None:
        wanted &= pc.field("timestamp") < choice.until
    if choice.key is not None:
        wanted &= pc.field("key") == pa.scalar(choice.key, pa.binary())
    return rows.filter(wanted)


def places_of(rows: pa.Table) -> list[Place]:
    """Where each row's record was read."""
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def by_reason(rows: pa.Table, before: Collection[Place]) -> tuple[Reason, ...]:
    """The rows counted by kind and cause; those whose places are among `before` were sent back before."""
    reasons = list(zip(rows["kind"].to_pylist(), rows["cause"].to_pylist(), strict=True))
    counts = Counter(reasons)
    again = Counter(reason for reason, place in zip(reasons, places_of(rows), strict=True) if place in before)
    return tuple(Reason(*reason, count, again[reason]) for reason, count in sorted(counts.items()))


def without(rows: pa.Table, places: Collection[Place]) -> pa.Table:
    """The rows whose records were read at other places."""
    return rows.filter(pa.array([place not in places for place in places_of(rows)], pa.bool_()))


def sent_back(rows: pa.Table, operator: str, *, times_in_values: bool) -> OutgoingColumns:
    """The rows of one partition as they are written: as they came, with one header more, which says whence."""
    blocks = [
        with_origin(headers, operator, place)
        for headers, place in zip(rows["headers"].to_pylist(), places_of(rows), strict=True)
    ]
    rejected = pc.equal(rows["kind"], "rejected")
    timestamps = pc.if_else(rejected, written_timestamps(rows, times_in_values=times_in_values), rows["timestamp"])
    return OutgoingColumns(
        key=rows["key"].combine_chunks(),
        value=rows["value"].combine_chunks(),
        headers=pa.array(blocks, pa.binary()),
        timestamp=timestamps.to_numpy(),
    )


def with_origin(headers: bytes | None, operator: str, place: Place) -> bytes:
    """The block of headers with `tidegate-redriven`: OPERATOR/PARTITION/OFFSET behind them."""
    origin = f"{operator}/{place[0]}/{place[1]}"
    return encode_headers([*decode_headers(headers or b""), (HEADER_REDRIVEN.encode(), origin.encode())])


class Redriving:
    """Sends refused records of one operator back to its input, or to another topic."""

    def __init__(self, application: Application, name: str, progress: Callable[[int, int], None]) -> None:
        """`progress` is called with every partition, and how many of its records were sent."""
        self._application, self._name, self._progress = application, name, progress
        self._config, path = application.operators[name], log_path(application.lake, name)
        if not has_version(path, None):
            raise UserError("the operator has no log yet", value=name, remedy="run it: tidegate run")
        self._log, self._redriven = OperatorLog.at(path, None), Redriven(path)
        self._group = redrive_group_id(application.application, name)

    @contextmanager
    def plan(self, choice: Choice, *, to: str | None, again: bool) -> Iterator[Redrive]:
        """What is to be sent; nobody else sends any meanwhile. Records of before are only in it `again`."""
        with self._redriven.locked():
            self._settle()
            rows, before = self._refused(choice), self._redriven.places()
            reasons = by_reason(rows, before)
            yield Redrive(to=to or self._config.input, rows=rows if again else without(rows, before), reasons=reasons)

    def send(self, redrive: Redrive) -> None:
        """All of it stands in the topic, and it is known that it was sent.

        Raises UserError when the topic lacks a partition; OutputTooLarge, EngineError: then some partitions may have
        been sent, which the next redrive finds out.
        """
        self._require_partitions(redrive)
        limit = client(self._application.kafka).max_message_bytes(redrive.to)
        run = self._redriven.begin(places_of(redrive.rows))
        for partition in run.partitions:
            rows = redrive.rows.filter(pc.field("partition") == partition).sort_by("offset")
            self._send_partition(redrive.to, partition, rows, run, limit)
            self._progress(partition, rows.num_rows)
        self._redriven.finish(run, run.places)

    def _refused(self, choice: Choice) -> pa.Table:
        kinds = get_args(RefusedKind) if choice.kind is None else (choice.kind,)
        found = [(kind, self._log.read(kind, choice.partition, columns=_COLUMNS)) for kind in kinds]
        named = [rows.append_column("kind", pa.array([kind] * rows.num_rows, pa.string())) for kind, rows in found]
        return chosen(pa.concat_tables(named), choice)

    def _settle(self) -> None:
        """No run is pending: what Kafka has of one that was cut short is known, and what was open of it is aborted."""
        for run in self._redriven.pending():
            for partition in run.partitions:
                self._initialised(partition)
            found = marks(client(self._application.kafka), self._group, self._config.input, run.partitions)
            texts = {partition: mark.metadata for partition, mark in found.items() if mark is not None}
            self._redriven.finish(run, really_sent(run, self._log.table_id, texts))

    def _require_partitions(self, redrive: Redrive) -> None:
        there = len(client(self._application.kafka).topic(redrive.to).leaders)
        needed = pc.max(redrive.rows["partition"]).as_py() + 1
        if needed > there:
            raise UserError(
                "the topic has too few partitions: records keep the number of theirs",
                value=f"{redrive.to}: {there}",
                remedy=f"give {redrive.to} at least {needed} partitions",
            )

    def _send_partition(self, topic: str, partition: int, rows: pa.Table, run: Run, limit: int) -> None:
        """The rows and the mark of the run stand in the topic, in one transaction."""
        columns = sent_back(rows, self._name, times_in_values=self._config.timestamp is not None)
        kafka, mark = client(self._application.kafka), format_mark(self._log.table_id, run.number)
        next_offset = rows["offset"][-1].as_py() + 1
        with self._aborted_on_errors(partition) as producer:
            producer = send_emissions(
                kafka, producer, topic, partition, columns, None, max_batch_bytes=limit, deadline_s=DEADLINE_S
            )
            place = (self._group, self._config.input, partition)
            producer = commit_offset(kafka, producer, *place, next_offset, mark, deadline_s=DEADLINE_S)
            end(kafka, producer, commit=True, deadline_s=DEADLINE_S)

    @contextmanager
    def _aborted_on_errors(self, partition: int) -> Iterator[Producer]:
        """A producer for one transaction; what an error leaves open is aborted, so that no reader waits for it."""
        try:
            yield self._initialised(partition)
        except BaseException:
            with suppress(TidegateError):
                self._initialised(partition)
            raise

    def _initialised(self, partition: int) -> Producer:
        name = redrive_transactional_id(self._application.application, self._name, partition)
        return initialise(client(self._application.kafka), name, timeout_ms=TIMEOUT_MS)
