"""Rescaling: an operator continues with another number of partitions, because its input topic has one.

`docs/protocol.md` has the rules. What is held moves to the partitions that Kafka's partitioner chooses, in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import EngineError, StateError, UserError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.log_schema import PART_COLUMNS
from tidegate.contracts.operator import Operator
from tidegate.operators.keys import bytes_of_window
from tidegate.operators.registry import kind_of, operator_for
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.claim import route_of
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.batch_loop.next_metadata import after_claim
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.kafka.first_partitions import first_partitions
from tidegate.runtime.publishing import topics
from tidegate.runtime.publishing.publication import Publication
from tidegate.runtime.repair.logs import existing_log
from tidegate.runtime.telemetry.batch_metrics import merge_partitions
from tidegate.state.delta_log.attempt_files import Naming, delete_files, numbered, without_empty, write_file
from tidegate.state.delta_log.data_files import DataFile, read_files
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.slots import live_rows
from tidegate.state.upkeep.rescaling import misplaced, offsets_in, rescaled, sources_of, stream_time_of_all
from tidegate.state.upkeep.state_moves import Held, aligned, checksum, counted, moved

PAUSE_S = 0.05
_OTHER_KINDS = ("emission", "late", "rejected", "meta")
READ_BYTES = 2**24
DEADLINE_S = 60.0
MOST_ROUNDS = 5
"""How often the former partitions are read to their end, before producers that still fill them count as an error."""


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """What a change of the number of partitions did: `checksum` is of all that was held, before as after."""

    batch: int
    before: int
    after: int
    held: int
    held_bytes: int
    rows: int
    released: int
    checksum: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """A wanted change of the number of partitions.

    `recreated`: the input topic was deleted and created again with that number.
    """

    application: Application
    name: str
    partitions: int
    recreated: bool = False
    environment: Environment = REAL

    @property
    def config(self) -> OperatorConfig:
        """Return the operator's configuration."""
        return self.application.operators[self.name]

    def kafka(self) -> KafkaClient:
        """Return a client that sees all partitions."""
        return self.environment.kafka(self.application.kafka)

    def log(self) -> OperatorLog:
        """Open the operator's log at its newest version."""
        return existing_log(self.application, self.name, self.environment)


def check_request(request: Request) -> BatchMeta:
    """Return the newest metadata. Raise UserError, with the remedy, if the topics do not have what the change needs."""
    config = request.config
    if not isinstance(operator_for(config).slot, tuple):
        raise UserError(
            "an operator of several steps cannot be rescaled",
            value=request.name,
            remedy="give it a new name to start from the beginning with the new number of partitions",
        )
    if len(config.inputs) > 1:
        raise UserError(
            "an operator with several input topics cannot be rescaled",
            value=", ".join(config.inputs),
            remedy="give it a new name to start from the beginning with the new number of partitions",
        )
    newest = request.log().newest()
    if newest is None:
        raise UserError("nothing has been read yet", value=request.name, remedy="run the operator: it needs no rescale")
    found = preflight.find_topics(request.kafka(), config, {})
    had, has = len(newest.partitions), found.partitions[config.input]
    if has != request.partitions:
        raise UserError(
            f"topic {config.input} does not have that number of partitions",
            value=f"{request.partitions}; the topic has {has}, the operator {had}",
            remedy="add the partitions to the topic first, or name the number that it has",
        )
    if had == has:
        raise UserError("the operator has that number of partitions already", value=had, remedy="run the operator")
    is_another = newest.topics.get(config.input) != found.ids[config.input]
    if is_another and not request.recreated:
        raise UserError(
            f"topic {config.input} was deleted and created again",
            value=f"topic id {found.ids[config.input]}, was {newest.topics.get(config.input)}",
            remedy="if the operator had read the former topic to its end, add --recreated: it reads the new one from "
            "its beginning",
        )
    if request.recreated and not is_another:
        raise UserError(
            f"topic {config.input} was not created again", value=request.name, remedy="leave out --recreated"
        )
    preflight.check_topics(_as_if(newest, found, config), config, found)
    return newest


def _as_if(newest: BatchMeta, found: preflight.Topics, config: OperatorConfig) -> BatchMeta:
    """Return the metadata as if the input had been that topic with that number of partitions, to check all else."""
    partitions = dict.fromkeys(range(found.partitions[config.input]), next(iter(newest.partitions.values())))
    return replace(newest, partitions=partitions, topics=newest.topics | {config.input: found.ids[config.input]})


def rescale(request: Request, spark: Callable[[], object]) -> Rescaled:
    """Move all that the operator holds to so many partitions, after it has read what its former partitions have.

    `spark` returns the session in which records are read; it is called only if the topic has grown. No driver may run
    meanwhile: the claims fence it. Raise UserError if the topics do not allow it or if records were not placed by
    Kafka's partitioner; StateError if a check fails. In all these cases nothing has moved.
    """
    newest = check_request(request)
    if request.recreated:
        _check_published(request, newest)
    else:
        _read_to_the_end(request, newest, spark())
    return move(request)


def _read_to_the_end(request: Request, newest: BatchMeta, spark: object) -> None:
    """Process and publish what the former partitions have, until no record is left that belongs elsewhere now."""
    narrowed = replace(request.environment, kafka=first_partitions(request.config.input, len(newest.partitions)))
    for _round in range(MOST_ROUNDS):
        driver = OperatorDriver(
            Wiring(spark=spark, application=request.application, name=request.name, environment=narrowed)
        )
        operator = driver.start()
        targets = operator.stable_ends()
        while any(operator.newest.unread(targets).values()):
            if not operator.round():
                request.environment.clock.sleep(PAUSE_S)
        operator.drain()
        if operator.publication.unclear:
            raise EngineError(
                "output of the operator is not published yet", value=request.name, remedy="check the brokers; try again"
            )
        if not _left_behind(request, operator.newest):
            return
    raise UserError(
        "producers still place records by the former number of partitions",
        value=", ".join(f"partition {p}: {count}" for p, count in _left_behind(request, operator.newest).items()),
        remedy="wait until all producers know the new partitions (metadata.max.age.ms, by default five minutes) and no "
        "transaction is open; try again",
    )


def _left_behind(request: Request, newest: BatchMeta) -> dict[int, int]:
    """Return per former partition how many unread records belong to another one now, open transactions included."""
    kafka, topic, found = request.kafka(), request.config.input, {}
    stable, ends = offsets.stable(kafka, topic), offsets.latest(kafka, topic)
    for partition, known in newest.partitions.items():
        count = _unread_elsewhere(request, kafka, partition, known.next_offset, stable[partition])
        if count or ends[partition] > stable[partition]:
            found[partition] = count + ends[partition] - stable[partition]
    return found


def _unread_elsewhere(request: Request, kafka: KafkaClient, partition: int, start: int, end: int) -> int:
    count, suffix = 0, bytes_of_window(request.config)
    while start < end:
        read = fetch(kafka, request.config.input, partition, start, end, max_bytes=READ_BYTES, deadline_s=DEADLINE_S)
        keys = [row.key if row.key is None else row.key[: len(row.key) - suffix] for row in read.records.rows()]
        rows = pa.table({"key": pa.array([key for key in keys if key is not None], pa.binary())})
        count, start = count + misplaced(rows, partition, request.partitions), read.next_offset
    return count


def _check_published(request: Request, newest: BatchMeta) -> None:
    """Raise UserError if output may not be published: without the former topic its marks cannot be written any more."""
    config, kafka = request.config, request.kafka()
    wanted = topics.claimed(newest, config)
    if not wanted.topics:
        return
    publication = Publication(
        lambda: kafka,
        request.log(),
        application=request.application.application,
        route=route_of(request.application.application, request.name, config, wanted, kafka),
        deadline_s=DEADLINE_S,
        clock=request.environment.clock,
    )
    # rule: rescale-output-settled/recreated
    if unsettled := publication.unsettled(newest):
        raise UserError(
            "output was committed, but perhaps not published, and the former input topic is gone",
            value=", ".join(f"partition {p}: batch {batch}" for p, batch in unsettled.items()),
            remedy=f"find out whether readers have it, then run tidegate settle FILE {request.name}",
        )


# ---- the move


def move(request: Request) -> Rescaled:
    """Write the state of the new partitions, check it, and commit it."""
    log, kafka, config = request.log(), request.kafka(), request.config
    newest = log.newest()
    if newest is None:
        raise AssertionError("the request was checked before")
    found = preflight.find_topics(kafka, config, {})
    starts = offsets.earliest(kafka, config.input)
    clock, attempt = request.environment.clock.now_ms(), uuid4().hex
    claim = after_claim(newest, attempt=attempt, clock=clock, config=newest.config, topics=found.ids)
    mover = _Mover(request, log, claim)
    try:
        mover.move()
        done, replaced = mover.checked(), mover.replaced()
        # rule: kill-points
        reach("before_rescale_commit")
    except Exception:
        delete_files(log.lake, [file.path for file in (*mover.state, *mover.split, *mover.output)])
        raise
    meta = rescaled(
        claim,
        {partition: starts[partition] for partition in range(request.partitions)},
        mover.counts,
        mover.highest,
        same_topic=not request.recreated,
        merge_measures=merge_partitions,
    )
    # rule: rescale-one-commit
    log.commit(meta, [*mover.state, *mover.split], replaced, mover.output)
    reach("after_rescale_commit")
    return done


class _Mover:
    """Moves the state of one group of partitions after the other: those among which keys move."""

    def __init__(self, request: Request, log: OperatorLog, claim: BatchMeta) -> None:
        self._log, self._claim, self._input = log, claim, request.config.input
        self._operator: Operator = operator_for(request.config)
        self._naming = Naming(log.format, claim.batch, claim.attempt, claim.clock)
        self._before, self._after = len(claim.partitions), request.partitions
        kind = kind_of(request.config.kind)
        # records that wait for a table are released by the next batch, and versions expire by it
        self._align = not kind.is_table and getattr(request.config, "table", None) is None
        self.state: list[DataFile] = []
        self.output: list[DataFile] = []
        self.split: list[DataFile] = []
        self.counts: dict[int, Counts] = {}
        self.highest: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._rows, self._checksum, self._held, self._bytes, self._released = 0, 0, 0, 0, 0

    def move(self) -> None:
        """Write the files of all new partitions."""
        groups = {sources_of(partition, self._before, self._after) for partition in range(self._after)}
        for sources in sorted(groups, key=lambda group: group.start):
            self._move_group(sources)

    def _move_group(self, sources: Sequence[int]) -> None:
        held = [self._held_by(source) for source in sources]
        latest = stream_time_of_all(each.stream_time for each in held)
        level = [
            aligned(self._operator, each, latest) if self._align else Held(rows=each.rows, stream_time=latest)
            for each in held
        ]
        for source, each in zip(sources, level, strict=True):
            self._note_before(source, each)
        for partition in range(self._after):
            if sources_of(partition, self._before, self._after) == sources:
                self._write(partition, moved(self._operator, level, partition, self._after))

    def _held_by(self, partition: int) -> Held:
        """Read what the partition holds. Raise UserError if a key of it is not where Kafka's partitioner puts it."""
        known = self._claim.partitions[partition]
        rows = live_rows(self._log.read("state", partition), self._operator.slot)
        if strays := misplaced(rows, partition, self._before):
            raise UserError(
                f"{self._claim.operator} cannot be rescaled by key: records were produced to partitions that Kafka's "
                "partitioner does not choose for their keys",
                value=f"partition {partition}: {strays} of {rows.num_rows} held",
                remedy="give the operator a new name to start from the beginning with the new number of partitions",
            )
        return Held(rows=rows, stream_time=known.stream_time)

    def _note_before(self, partition: int, held: Held) -> None:
        totals = self._claim.partitions[partition].totals
        unchanged = held.emissions is None
        counts = totals if unchanged else counted(self._operator, replace(held, emissions=None))
        self._rows += held.rows.num_rows
        self._released += held.emitted
        self._held, self._bytes = self._held + counts.held, self._bytes + counts.held_bytes
        self._checksum = (self._checksum + checksum(self._operator, held.rows)) % 2**64

    def _write(self, partition: int, held: Held) -> None:
        numbers = offsets_in(held.rows, self._operator.offset_columns)
        self.highest[partition] = int(numbers[-1]) if len(numbers) else -1
        self.counts[partition], self._times[partition] = Counts(emitted=held.emitted), held.stream_time
        if held.rows.num_rows:
            self.state.append(self._file("state", partition, held.rows))
        if held.emissions is not None and held.emitted:
            self.output.append(self._file("emission", partition, held.emissions))

    def _file(self, kind: str, partition: int, rows: pa.Table) -> DataFile:
        """Write the rows as rows of the rescale's batch to a file of their own."""
        moved = rows.drop_columns([name for name in PART_COLUMNS if name in rows.column_names])
        given = numbered([moved], self._claim.batch, self._input)
        return write_file(self._log.lake, self._naming, kind, partition, without_empty(given))

    def replaced(self) -> list[DataFile]:
        """Return all parts of the files that have state; their other rows are written again, each as it is."""
        state = self._log.data_files("state")
        paths = {file.path for file in state}
        others = [file for kind in _OTHER_KINDS for file in self._log.data_files(kind) if file.path in paths]
        for number, file in enumerate(others, 1):
            rows = read_files(self._log.lake, [file], self._log.schema).drop_columns(PART_COLUMNS)
            place = file.kind, file.partition
            self.split.append(write_file(self._log.lake, self._naming, *place, without_empty(rows), number=number))
        return [*state, *others]

    def checked(self) -> Rescaled:
        """Read the new files again, and return what was moved. Raise StateError unless it is all that was held."""
        rows = found = held = held_bytes = 0
        for file in self.state:
            read = read_files(self._log.lake, [file], self._log.schema)
            counts = counted(self._operator, Held(rows=read, stream_time=self._times[file.partition]))
            if misplaced(read, file.partition, self._after):
                raise _not_the_same("keys are in other partitions than Kafka's partitioner chooses", file.path)
            self.counts[file.partition] = replace(
                self.counts[file.partition], held=counts.held, held_bytes=counts.held_bytes
            )
            rows, held, held_bytes = rows + read.num_rows, held + counts.held, held_bytes + counts.held_bytes
            found = (found + checksum(self._operator, read)) % 2**64
        was, now = (self._rows, self._held, self._bytes, self._checksum), (rows, held, held_bytes, found)
        # rule: rescale-checked
        if was != now:
            raise _not_the_same("rows, held, bytes and checksum differ", f"{was} before, {now} after")
        return Rescaled(
            batch=self._claim.batch,
            before=self._before,
            after=self._after,
            held=held,
            held_bytes=held_bytes,
            rows=rows,
            released=self._released,
            checksum=found,
        )


def _not_the_same(what: str, value: str) -> StateError:
    return StateError(
        f"the moved state is not what was held: {what}",
        value=value,
        remedy="this is a defect of Tidegate: report it with the value; nothing was committed",
    )
