"""Conversions between the results of one step, and the flow and the tables of the whole pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.flow import NO_SOURCE, Flow, Marks, Passage
from tidegate.contracts.log_schema import STEP_TOPIC
from tidegate.contracts.operator import Array, Operator, StepResult
from tidegate.contracts.records import NULL_LENGTH, Int64s, Records
from tidegate.kernels.columns import binary_column, in_one, int_column, records_of
from tidegate.operators.keys import WINDOW
from tidegate.operators.result_tables import LATE_AND_REJECTED, changes_schema, dictionary_column

STEP = pa.field("step", pa.dictionary(pa.int32(), pa.string()))  # each name once, not once per row
SOURCE, TOPIC = pa.field("source", pa.int64()), pa.field("topic", pa.string())
REFUSED = pa.schema([*LATE_AND_REJECTED, STEP, SOURCE, TOPIC])
_PARTS = ("key", "value", "headers", "timestamp", "offset")
_NO_BYTES = np.zeros(0, np.uint8)


def flow_of(result: StepResult, source: Int64s, hold: int | None, *, with_columns: bool) -> Flow:
    """Return the results of a step, with the marks that it passes on. `source`: those of the rows that it read.

    `with_columns`: also the columns of results that are no part of a record, for emissions behind other steps.
    """
    assert isinstance(result.passage, Passage)
    marks, columns = result.passage.marks(hold), _columns_of(result.emissions) if with_columns else None
    records = Flow(rows=_records_of(result.emissions), source=causes_of(result, source), columns=columns)
    return _with_marks(records, marks, _sources_of(source, marks.row))


def causes_of(result: StepResult, source: Int64s) -> Int64s:
    """Return the source of each result of a step. `source`: those of the rows that it read."""
    assert isinstance(result.passage, Passage)
    return _sources_of(source, result.passage.emitted_after)


def _sources_of(source: Int64s, rows: Int64s) -> Int64s:
    return source[rows] if len(source) else np.full(len(rows), NO_SOURCE, np.int64)


def in_sequence(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of the tables, one table after the other; a column that one of them lacks has nulls there."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _records_of(emissions: pa.Table) -> Records:
    records = records_of(emissions)
    if "window_start" not in emissions.schema.names:
        return records
    start, end = (int_column(emissions.column(name)) for name in ("window_start", "window_end"))
    return replace(records, window=(start, end))


def _columns_of(emissions: pa.Table) -> pa.RecordBatch:
    """Return the columns of emissions that are no part of a record, such as the cause."""
    rows = emissions.drop_columns(list(_PARTS))
    return pa.record_batch([in_one(column) for column in rows.columns], rows.schema)


def _with_marks(flow: Flow, marks: Marks, mark_causes: Int64s) -> Flow:
    """Return the records and the marks in one sequence."""
    records, causes, columns = flow.rows, flow.source, flow.columns
    if not len(marks.at):
        return flow
    is_mark = np.zeros(len(records) + len(marks.at), np.bool_)
    is_mark[marks.at + np.arange(len(marks.at))] = True
    at = np.flatnonzero(~is_mark)

    def among_marks(of_records: Array, of_marks: Int64s | int = 0) -> Array:
        found = np.empty(len(is_mark), np.int64)
        found[at], found[is_mark] = of_records, of_marks
        return found

    rows = Records(
        data=records.data,
        timestamp=among_marks(records.timestamp, marks.time),
        window=records.window and (among_marks(records.window[0]), among_marks(records.window[1])),
        time_only=is_mark,
        **{name: among_marks(getattr(records, name)) for name in _PLACES},
    )
    if columns is not None:
        columns = columns.take(pa.array(np.cumsum(~is_mark) - 1, mask=is_mark))
    return Flow(rows=rows, source=among_marks(causes, mark_causes), columns=columns)


_PLACES = ("offset", *(f"{part}_{of}" for part in ("key", "value", "headers") for of in ("start", "length")))


def numbered(flow: Flow, received: int) -> Flow:
    """Return the flow whose records have arrival numbers from `received` on; a mark has that of the next record."""
    is_record = flow.is_record
    offsets = received + np.cumsum(is_record) - is_record
    return replace(flow, rows=replace(flow.rows, offset=offsets.astype(np.int64)))


def joined(*flows: Flow) -> Flow:
    """Return what these flows have, one after the other."""
    used = [flow for flow in flows if len(flow)]
    if len(used) < 2:
        return (used or list(flows))[0]
    bases = np.cumsum([0, *(len(flow.rows.data) for flow in used)])
    parts = [_moved(flow.rows, int(base)) for flow, base in zip(used, bases, strict=False)]
    rows = Records(
        data=np.concatenate([rows.data for rows in parts]),
        timestamp=np.concatenate([rows.timestamp for rows in parts]),
        time_only=np.concatenate([~flow.is_record for flow in used]),
        window=_joined_windows(parts),
        **{name: np.concatenate([getattr(rows, name) for rows in parts]) for name in _PLACES},
    )
    source, columns = np.concatenate([flow.source for flow in used]), [flow.columns for flow in used]
    if any(each is None for each in columns):
        return Flow(rows=rows, source=source)
    return Flow(rows=rows, source=source, columns=pa.Table.from_batches(columns).combine_chunks().to_batches()[0])


def emissions_of(flow: Flow) -> pa.Table:
    """Return the records of a flow as the emissions of the pipeline."""
    flow = flow.records_alone()
    assert flow.columns is not None
    kept = [name for name in ("cause", *WINDOW) if name in flow.columns.schema.names]
    return pa.table(_record_columns(flow.rows) | {name: flow.columns.column(name) for name in kept})


def _moved(rows: Records, base: int) -> Records:
    return replace(rows, **{name: getattr(rows, name) + base for name in _PLACES if name.endswith("_start")})


def _joined_windows(parts: Sequence[Records]) -> tuple[Int64s, Int64s] | None:
    if all(rows.window is None for rows in parts):
        return None
    windows = [rows.window or (np.zeros(len(rows), np.int64),) * 2 for rows in parts]
    start, end = (np.concatenate([window[bound] for window in windows]) for bound in (0, 1))
    return start, end


def changes_of(operators: Iterable[Operator]) -> pa.Schema:
    """Return the schema of a pipeline's changelog: the columns of all steps, each once."""
    columns = {field.name: field for operator in operators for field in own_columns(operator)}
    return changes_schema([STEP, *columns.values()])


def own_columns(operator: Operator) -> list[pa.Field]:
    """Return the columns that the rows of a step's changelog have beside the common ones."""
    slot = [pa.field(name, pa.int64()) for name in slot_of(operator) if name not in changes_schema().names]
    return [*slot, *(field for field in operator.columns if field.name not in slot_of(operator))]


def slot_of(operator: Operator) -> tuple[str, ...]:
    """Return the columns that identify the slots of a step."""
    assert isinstance(operator.slot, tuple), "a step is no pipeline"
    return operator.slot


def tagged(rows: pa.Table, step: str, schema: pa.Schema | None = None) -> pa.Table:
    """Return the rows with the name of their step, with the columns of the schema if one is given."""
    rows = rows.append_column(STEP, dictionary_column(np.zeros(rows.num_rows, np.int32), _only(step)))
    if schema is None:
        return rows
    given = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = [given[f.name] if f.name in given else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema)


@lru_cache
def _only(name: str) -> pa.Array:
    return pa.array([name])


def rows_of(rows: pa.Table, step: str, operator: Operator) -> pa.Table:
    """Return the rows of one step, with the columns that its operator knows."""
    found = rows.filter(pc.equal(rows[STEP.name], step))
    for field in own_columns(operator):
        if field.name not in found.schema.names:  # the log is older than the step
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    named = [*changes_schema(own_columns(operator)).names, *_used_undo_columns(found)]
    return found.select([name for name in named if name in found.schema.names])


def _used_undo_columns(rows: pa.Table) -> list[str]:
    """Return the columns that only rows which undo a batch have."""
    return [name for name in ("slot",) if name in rows.schema.names and rows[name].null_count < rows.num_rows]


def refused_rows(rows: pa.Table, step: str, source: Array, *, of_input: bool) -> pa.Table:
    """Return late or rejected rows with the name of their step and the offset of their source.

    `of_input`: they are records of the input, as they are. Others have `step:NAME` where these have their topic.
    """
    topic = pa.scalar(None if of_input else STEP_TOPIC + step, TOPIC.type)
    return sourced(tagged(rows, step), source).append_column(TOPIC, pa.repeat(topic, rows.num_rows))


def taken_rows(rows: pa.Table, untaken: Set[int]) -> pa.Table:
    """Return refused rows where those of records that another branch takes are no records of the input any more."""
    known = pc.is_in(rows[SOURCE.name], pa.array(sorted(untaken), SOURCE.type))
    taken = pc.and_(pc.is_null(rows[TOPIC.name]), pc.invert(known))
    of_step = pc.binary_join_element_wise(STEP_TOPIC, rows[STEP.name].cast(pa.string()), "")
    topic = pc.if_else(taken, of_step, rows[TOPIC.name])
    return rows.set_column(rows.schema.get_field_index(TOPIC.name), TOPIC, topic)


def with_given_bytes(rows: pa.Table, records: Records) -> pa.Table:
    """Return refused rows of the input with key, value and headers as they were before any step changed them."""
    places = np.arange(len(records)) if records.time_only is None else np.flatnonzero(~records.time_only)
    at = places[np.searchsorted(records.offset[places], rows["offset"].to_numpy())]
    given = _record_columns(records.take(at))
    for part in ("key", "value", "headers"):
        rows = rows.set_column(rows.schema.get_field_index(part), rows.schema.field(part), given[part])
    return rows


def sourced(rows: pa.Table, source: Array) -> pa.Table:
    """Return the rows with the offsets of the input records that caused them."""
    return rows.append_column(SOURCE, pa.array(source, SOURCE.type))


def rejected_rows(flow: Flow, rejected: Int64s, causes: Sequence[str]) -> pa.Table:
    """Return the rows of a flow that a stateless step rejected, each with its cause."""
    cause = pa.array(list(causes), pa.string()).cast(LATE_AND_REJECTED.field("cause").type)
    nothing = pa.nulls(len(rejected), pa.int64())
    columns = _record_columns(flow.rows.take(rejected)) | {"cause": cause, "lateness": nothing, "bound": nothing}
    return pa.table(columns, LATE_AND_REJECTED)


def _record_columns(rows: Records) -> dict[str, pa.Array | pa.ChunkedArray]:
    headers_length = np.where(rows.headers_length > 0, rows.headers_length, NULL_LENGTH)
    return {
        "key": binary_column(rows.data, _NO_BYTES, rows.key_start, rows.key_length),
        "value": binary_column(rows.data, _NO_BYTES, rows.value_start, rows.value_length),
        "headers": binary_column(rows.data, _NO_BYTES, rows.headers_start, headers_length),
        "timestamp": pa.array(rows.timestamp, mask=rows.timestamp == NO_TIMESTAMP),
        "offset": pa.array(rows.offset),
    }
