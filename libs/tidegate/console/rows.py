"""Rows of an operator's log as of a batch: what it held, its emissions, and its late and rejected records.

Rows are read from the newest batch down, as far as a page needs: a state row is held if no newer one has its slot. A
version of a table ends where the next one of its key begins, which may be in any older batch; those are looked for by
key. A partition that is too large for that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.log_schema import Kind as RowKind
from tidegate.operators.registry import kind_of, operator_for
from tidegate.runtime.configuration.changes import held_in
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.positions import Position
from tidegate.state.slots import live_rows

PAGE_ROWS = 50

LARGEST_STATE_ROWS = 1_000_000
LARGEST_STATE_BYTES = 2**28
"""State rows of a partition, and bytes of their files, above which the console does not show what is held."""

LOOKED_THROUGH_ROWS = 500_000
"""After so many rows without a full page, as of a step that rarely emits, the page ends and names where to go on."""

FIRST_SPAN, SPAN_GROWTH = 8, 8
"""How many batches are read first, and how many times as many each time after that, until the page is full."""

_FOUND_BY = ["batch", "partition", "seq"]
_NOT_OF_STATE = {"headers", "topic", "cause", "lateness", "bound"}
"""Columns that pages of what is held do not show."""
_SHOWN = ["key", "value", "timestamp", "offset", "window_start", "window_end", "cause", "lateness", "bound"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """What a page shows: rows of a kind, from an operator or a step of it, as of the end of a batch (None: now).

    `partition` None: all partitions, but what is held is shown of one. `before`: only rows below this position.
    """

    kind: RowKind
    step: str | None = None
    partition: int | None = None
    batch: int | None = None
    before: Position | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """Rows of a log, newest first.

    `newest`: the metadata after the batch that the page is as of. `older`: the position below which the next page
    begins; None if there is none. `total`: how much the partition holds, on a page of that.
    """

    rows: pa.Table
    newest: BatchMeta
    partition: int | None
    older: Position | None
    total: int | None = None


def read_page(log: LogVersion, rules: OperatorRules, query: Query) -> Page:
    """Return the rows of the page. `log`: the operator's, just after the batch of the query.

    Raise UserError if the log has no batch, or if there is too much to show.
    """
    newest = log.newest()
    if newest is None:
        raise UserError("the operator has no batch yet", value=log.place, remedy="start the operator: tidegate run")
    return _held(log, newest, rules, query) if query.kind == "state" else _output(log, newest, query)


def _held(log: LogVersion, newest: BatchMeta, rules: OperatorRules, query: Query) -> Page:
    """Return a page of what a partition holds."""
    partition = min(newest.partitions, default=0) if query.partition is None else query.partition
    refuse_too_much(log.data_files("state", partition))
    kind, slot = kind_of(rules.kind), tuple(_slot(rules))

    def held(rows: pa.Table) -> pa.Table:
        return _newest(_below(kind.held(live_rows(rows, slot), rules), query.before), PAGE_ROWS + 1)

    rows, read_from = _newest_state(log, newest, partition, query, lambda rows: len(held(rows)) > PAGE_ROWS)
    if kind.is_table:
        keys = held(rows)["key"].to_pylist()
        older = log.read("state", partition, columns=rows.column_names, up_to=read_from - 1, keys=keys)
        rows = pa.concat_tables([_of_step(older, query.step), rows])
    found = held(rows)
    page = found.slice(0, PAGE_ROWS)
    added = [name for name in found.column_names if name not in log.schema.names]
    below = _position(page, PAGE_ROWS - 1) if len(found) > PAGE_ROWS else None
    known = newest.partitions.get(partition)
    total = 0 if known is None else held_in(known, query.step or "")
    return Page(rows=_shown(page, added), newest=newest, partition=partition, older=below, total=total)


def _newest_state(
    log: LogVersion, newest: BatchMeta, partition: int, query: Query, is_enough: Callable[[pa.Table], bool]
) -> tuple[pa.Table, int]:
    """Return the state rows from the newest batch down to where they are enough, oldest first, and that batch.

    Those of the batches above the page are without values: they only show which of the rows are no longer held.
    """
    columns = [name for name in log.schema.names if name not in _NOT_OF_STATE]
    top = _top(newest, query)
    above = log.read("state", partition, top, [name for name in columns if name != "value"])
    found, after = [log.schema.empty_table().select(columns), _of_step(above, query.step)], top
    rows = pa.concat_tables(found, promote_options="default")
    for after, up_to in _spans(top, log.data_files("state", partition, up_to=top)):
        found.insert(0, _of_step(log.read("state", partition, after, columns, up_to=up_to), query.step))
        if is_enough(rows := pa.concat_tables(found, promote_options="default")):
            break
    return rows, after + 1


def _top(newest: BatchMeta, query: Query) -> int:
    """Return the newest batch of which the page may have rows."""
    return newest.batch if query.before is None else min(newest.batch, query.before.batch)


def _spans(top: int, files: Sequence[DataFile]) -> Iterator[tuple[int, int]]:
    """Yield ranges of batches from `top` down that have all rows of the files, as (after, up_to).

    Each is several times as long as the one before. Batches that no file has are passed over, as after a compaction
    behind which nothing was emitted.
    """
    length, left = FIRST_SPAN, list(files)
    while left:
        top = min(top, max(file.max_batch for file in left))
        after = max(top - length, -1)
        yield after, top
        top, length = after, length * SPAN_GROWTH
        left = [file for file in left if file.min_batch <= top]


def _slot(rules: OperatorRules) -> Sequence[str]:
    slot = operator_for(rules).slot
    assert isinstance(slot, tuple), "a pipeline's state is shown by step"
    return slot


def refuse_too_much(files: Sequence[DataFile]) -> None:
    """Raise UserError if the files have more state rows than a page may read."""
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    if rows > LARGEST_STATE_ROWS or size > LARGEST_STATE_BYTES:
        remedy = "query the view of what is held: tidegate sql"
        value = f"{rows:,} state rows, files of {size / 2**20:,.0f} MiB"
        raise UserError("the state is too large for a page", value=value, remedy=remedy)


def _output(log: LogVersion, newest: BatchMeta, query: Query) -> Page:
    """Return a page of emissions or of late or rejected rows."""
    found, older = _newest_positions(log, _top(newest, query), query)
    rows = _rows_at(log, query, found)
    return Page(rows=rows, newest=newest, partition=query.partition, older=older)


def _newest_positions(log: LogVersion, top: int, query: Query) -> tuple[pa.Table, Position | None]:
    """Return the positions of the page's rows, newest first, and the position below which the next page begins.

    Only the columns that decide this are read, from batch `top` down.
    """
    columns = [*_FOUND_BY, *(["step"] if query.step is not None else [])]
    found, looked_through = pa.schema([(name, log.schema.field(name).type) for name in columns]).empty_table(), 0
    for after, up_to in _spans(top, log.data_files(query.kind, query.partition, up_to=top)):
        rows = _below(log.read(query.kind, query.partition, after, columns, up_to=up_to), query.before)
        looked_through += len(rows)  # those above do not count: else the next page might begin where this one did
        matching = _newest(_of_step(rows, query.step), PAGE_ROWS + 1)
        found = pa.concat_tables([found, matching]).slice(0, PAGE_ROWS + 1)
        if len(found) > PAGE_ROWS:
            return found.slice(0, PAGE_ROWS), _position(found, PAGE_ROWS - 1)
        if looked_through >= LOOKED_THROUGH_ROWS:
            return found, Position(after + 1, 0, 0)
    return found, None


def _rows_at(log: LogVersion, query: Query, positions: pa.Table) -> pa.Table:
    """Return the rows at these positions, newest first; nothing but their batches is read."""
    batches = pc.min_max(positions["batch"]).as_py()
    first, last = (batches["min"], batches["max"]) if len(positions) else (0, -1)
    columns = [name for name in ("step", *_FOUND_BY, *_SHOWN) if name in log.schema.names]
    rows = _of_step(log.read(query.kind, query.partition, first - 1, columns, up_to=last), query.step)
    return _shown(_newest(_below(rows, query.before), len(positions)), [])


def _of_step(rows: pa.Table, step: str | None) -> pa.Table:
    return rows if step is None else rows.filter(pc.equal(rows["step"], step))


def _below(rows: pa.Table, before: Position | None) -> pa.Table:
    """Return the rows whose position is smaller."""
    if before is None:
        return rows
    batch, partition, seq = (rows[name] for name in _FOUND_BY)
    in_partition = pc.and_(pc.equal(partition, before.partition), pc.less(seq, before.seq))
    in_batch = pc.and_(pc.equal(batch, before.batch), pc.or_(pc.less(partition, before.partition), in_partition))
    return rows.filter(pc.or_(pc.less(batch, before.batch), in_batch))


def _newest(rows: pa.Table, most: int) -> pa.Table:
    """Return the newest rows, at most `most`, the newest first. Only the columns that decide are looked at."""
    order = [(name, "descending") for name in _FOUND_BY]
    return rows.take(pc.select_k_unstable(rows.select(_FOUND_BY), min(most, len(rows)), order))


def _position(rows: pa.Table, at: int) -> Position:
    return Position(*(rows[name][at].as_py() for name in _FOUND_BY))


def _shown(rows: pa.Table, added: Sequence[str]) -> pa.Table:
    """Return the columns that people look at; those of windows, causes and times only if some row has one."""
    there = [name for name in _SHOWN if name in rows.column_names]
    used = [name for name in there if rows[name].null_count < len(rows) or name in ("key", "value")]
    steps = ["step"] if "step" in rows.column_names and rows["step"].null_count < len(rows) else []
    return rows.select([*_FOUND_BY, *steps, *used, *added])
