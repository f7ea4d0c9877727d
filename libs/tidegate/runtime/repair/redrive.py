"""Redriving late and rejected records: choose them from the log, and send each partition's in one Kafka transaction.

The log is only read, so that the operator's service may run meanwhile.
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
from tidegate.contracts.log_schema import STEP_TOPIC
from tidegate.contracts.naming import HEADER_REDRIVEN, redrive_group_id, redrive_transactional_id
from tidegate.contracts.records import UNREADABLE_BATCH
from tidegate.kernels.record_format.record_batch import OutgoingColumns, decode_headers, encode_headers
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.offsets import committed_offsets
from tidegate.runtime.kafka.transactions import Producer, commit_offsets, encoded, end, init_producer, produce
from tidegate.runtime.publishing.dead_letters import written_timestamps
from tidegate.runtime.repair.redriven import (
    Place,
    Redriven,
    Run,
    format_mark,
    really_sent,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake

DEADLINE_S = 60.0
TIMEOUT_MS = 180_000
"""Transaction timeout: if a redrive is killed, readers of the topic wait this long until brokers abort it."""

DeadLetterKind = Literal["late", "rejected"]
_COLUMNS = ["batch", "partition", "offset", "key", "value", "headers", "timestamp", "cause", "topic"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A selection of late and rejected records. A field left out selects all; event times in [since, until), ms."""

    kind: DeadLetterKind | None = None
    causes: tuple[str, ...] = ()
    partition: int | None = None
    since: int | None = None
    until: int | None = None
    key: bytes | None = None


class Reason(NamedTuple):
    """A kind and cause, with the number of chosen records that have it, and how many of these were redriven before."""

    kind: str
    cause: str
    records: int
    before: int


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """A planned redrive.

    `number`: that of its run. `to`: the topic. `rows`: the records to send, with the log's columns and `kind`.
    `reasons`: counts of all chosen records, including those that are not sent because they were redriven before.
    """

    number: int
    to: str
    rows: pa.Table
    reasons: tuple[Reason, ...]


def chosen(rows: pa.Table, choice: Choice) -> pa.Table:
    """Return the selected rows. A row without an event time is never in a range of times.

    Rows that stand for a whole unreadable record batch are never selected: they have no record to send. Neither are
    rows that a step within a pipeline refused: they are no records of the input.
    """
    wanted = ~pc.starts_with(pc.field("cause"), UNREADABLE_BATCH)
    wanted &= ~pc.starts_with(pc.coalesce(pc.field("topic"), pc.scalar("")), STEP_TOPIC)
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
    """Return the partition and offset at which each row's record was read."""
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def of_topic(rows: pa.Table, inputs: Collection[str], to: str | None) -> pa.Table:
    """Return the rows of records that were read from that input topic; all of them if it is none of the inputs.

    Raise UserError if no topic is named.
    """
    if to is None:
        remedy = "name one of them with --to: the records that were read there are sent back"
        raise UserError("the operator reads several topics", value=", ".join(inputs), remedy=remedy)
    return rows.filter(pc.equal(rows["origin_topic"], to)) if to in inputs else rows


def by_reason(rows: pa.Table, before: Collection[Place]) -> tuple[Reason, ...]:
    """Return the numbers of rows by kind and cause; rows at a place in `before` were redriven before."""
    reasons = list(zip(rows["kind"].to_pylist(), rows["cause"].to_pylist(), strict=True))
    counts = Counter(reasons)
    again = Counter(reason for reason, place in zip(reasons, places_of(rows), strict=True) if place in before)
    return tuple(Reason(*reason, count, again[reason]) for reason, count in sorted(counts.items()))


def without(rows: pa.Table, places: Collection[Place]) -> pa.Table:
    """Return the rows whose records were not read at one of the places."""
    return rows.filter(pa.array([place not in places for place in places_of(rows)], pa.bool_()))


def once_each(rows: pa.Table) -> pa.Table:
    """Return one row of each record: several branches of a pipeline may have refused the same record.

    The batch tells records of the same partition and offset apart, of an input topic that was created again.
    """
    numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    first = numbered.group_by(["batch", "partition", "offset"]).aggregate([("row", "min")])
    return rows.take(first["row_min"].sort())


def sent_back(rows: pa.Table, operator: str, *, times_in_values: bool) -> OutgoingColumns:
    """Return the rows of one partition for the encoder: the original records with a further header for their origin."""
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
    """Return the block of headers with `tidegate-redriven: OPERATOR/PARTITION/OFFSET` appended."""
    origin = f"{operator}/{place[0]}/{place[1]}"
    return encode_headers([*decode_headers(headers or b""), (HEADER_REDRIVEN.encode(), origin.encode())])


class Redriving:
    """The redrive of one operator's late and rejected records to its input or to another topic."""

    def __init__(self, application: Application, name: str, progress: Callable[[int, int], None]) -> None:
        """Open the operator's log. `progress` is called with each partition and the number of records sent."""
        self._application, self._name, self._progress = application, name, progress
        self._config, log = application.operators[name], open_lake(application.lake / name)
        if not has_version(log, None):
            raise UserError("the operator has no log yet", value=name, remedy="run it: tidegate run")
        self._log, self._redriven = LogVersion.at(log, None), Redriven(log)
        self._group = redrive_group_id(application.application, name)

    def plan(self, choice: Choice, *, to: str | None, again: bool) -> Redrive:
        """Return the planned redrive.

        Records that were redriven before are only included with `again`. Those of a run that is not finished count as
        redriven; see `settle`. Of several input topics, `to` names one, and the records that were read there are sent
        back; raise UserError without it.
        """
        number, before = self._redriven.next_number(), self._redriven.places()
        rows = self._late_and_rejected(choice)
        if len(self._config.inputs) > 1:
            rows = of_topic(rows, self._config.inputs, to)
        return Redrive(
            number=number,
            to=to or self._config.input,
            rows=once_each(rows if again else without(rows, before)),
            reasons=by_reason(rows, before),
        )

    def send(self, redrive: Redrive) -> None:
        """Send all records of the redrive, and record that they were sent.

        Raise UserError if the topic has too few partitions, or if another redrive of the operator was started since
        the plan was made. Raise OutputTooLarge or EngineError if a partition fails. Other partitions may have been
        sent; the next redrive detects that.
        """
        self._require_partitions(redrive)
        limit = client(self._application.kafka).max_message_bytes(redrive.to)
        run = self._redriven.begin(redrive.number, places_of(redrive.rows))
        for partition in run.partitions:
            rows = redrive.rows.filter(pc.field("partition") == partition).sort_by("offset")
            self._send_partition(redrive.to, partition, rows, run, limit)
            self._progress(partition, rows.num_rows)
        self._redriven.finish(run, run.places)

    def _late_and_rejected(self, choice: Choice) -> pa.Table:
        kinds = get_args(DeadLetterKind) if choice.kind is None else (choice.kind,)
        columns = [*_COLUMNS, *(["origin_topic"] if len(self._config.inputs) > 1 else [])]
        found = [(kind, self._log.read(kind, choice.partition, columns=columns)) for kind in kinds]
        named = [rows.append_column("kind", pa.array([kind] * rows.num_rows, pa.string())) for kind, rows in found]
        return chosen(pa.concat_tables(named), choice)

    def settle(self) -> None:
        """Finish the runs that are not finished; a run that still goes on sends nothing more, and fails.

        Abort their open transactions, and record which partitions were committed to Kafka.
        """
        for run in self._redriven.pending():
            # the mark comes first: a partition of the run is fenced here, or was fenced by the run before it asked
            self._redriven.take_over(run)
            for partition in run.partitions:
                self._initialised(partition)
            found = committed_offsets(client(self._application.kafka), self._group, self._config.input, run.partitions)
            texts = {partition: mark.metadata for partition, mark in found.items() if mark is not None}
            self._redriven.finish(run, really_sent(run, self._log.table_id, texts))

    def _require_partitions(self, redrive: Redrive) -> None:
        there = len(client(self._application.kafka).topic(redrive.to).leaders)
        needed = pc.max(redrive.rows["partition"]).as_py() + 1
        if needed > there:
            raise UserError(
                "the topic has too few partitions: each record keeps its partition number",
                value=f"{redrive.to}: {there}",
                remedy=f"give {redrive.to} at least {needed} partitions",
            )

    def _send_partition(self, topic: str, partition: int, rows: pa.Table, run: Run, limit: int) -> None:
        """Send the rows to the topic and commit the mark of the run, in one transaction."""
        columns = sent_back(rows, self._name, times_in_values=self._config.timestamp is not None)
        kafka, mark = client(self._application.kafka), format_mark(self._log.table_id, run.number)
        next_offset = rows["offset"][-1].as_py() + 1
        with self._aborted_on_errors(partition) as producer:
            self._redriven.check_not_taken(run)
            batches = encoded(producer, topic, partition, [(columns, None)], max_batch_bytes=limit)
            producer = produce(kafka, producer, [batches], deadline_s=DEADLINE_S)
            marks = {self._config.input: {partition: (next_offset, mark)}}
            producer = commit_offsets(kafka, producer, self._group, marks, deadline_s=DEADLINE_S)
            end(kafka, producer, commit=True, deadline_s=DEADLINE_S)

    @contextmanager
    def _aborted_on_errors(self, partition: int) -> Iterator[Producer]:
        """Yield a producer for one transaction. Abort it after an error, so that no reader has to wait for it."""
        try:
            yield self._initialised(partition)
        except BaseException:
            with suppress(TidegateError):
                self._initialised(partition)
            raise

    def _initialised(self, partition: int) -> Producer:
        name = redrive_transactional_id(self._application.application, self._name, partition)
        return init_producer(client(self._application.kafka), name, timeout_ms=TIMEOUT_MS)
