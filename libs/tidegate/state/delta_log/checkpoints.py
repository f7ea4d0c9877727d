"""Write and read checkpoints of a Delta log: the whole table in one Parquet file, so that readers replay few entries.

A checkpoint is written from the table that the driver holds in memory. Its cost grows with the number of live files,
not with the length of the log.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.contracts.errors import StateError
from tidegate.contracts.log_schema import PART_COLUMNS
from tidegate.state.delta_log.actions import Action
from tidegate.state.delta_log.log_entries import (
    LAST_CHECKPOINT,
    checkpoint_key,
    refuse_paths_outside,
)
from tidegate.state.lake.port import Lake

_TEXTS = pa.map_(pa.string(), pa.string())
_ACTIONS: dict[str, list[tuple[str, pa.DataType]]] = {
    "txn": [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())],
    "add": [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXTS),
    ],
    "metaData": [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXTS),
    ],
    "protocol": [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())],
}
_SCHEMA = pa.schema([(name, pa.struct(columns)) for name, columns in _ACTIONS.items()])


def write_checkpoint(log: Lake, version: int, actions: Sequence[Action]) -> None:
    """Write a checkpoint of the version with these actions, atomically and durably, and update `_last_checkpoint`."""
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(actions, _SCHEMA), body, compression="snappy", store_schema=False)
    hint = {"version": version, "size": len(actions)}
    log.put(checkpoint_key(version), body.getvalue())
    log.put(LAST_CHECKPOINT, json.dumps(hint).encode())


def read_checkpoint(log: Lake, version: int) -> list[Action] | None:
    """Return the actions of the version's checkpoint, whichever program wrote it; None if there is none.

    Raise StateError, naming the file, if it is damaged or names a file that is not the table's.
    """
    content, place = log.get(checkpoint_key(version)), log.place / checkpoint_key(version)
    if content is None:
        return None
    try:
        table = pq.read_table(pa.BufferReader(content), columns=list(_ACTIONS))
    except pa.ArrowInvalid as error:
        raise StateError(
            "a checkpoint of the operator log is damaged",
            value=place,
            remedy="move it away and start again: the log's entries say the same, as far as they go back",
        ) from error
    others = [name for name in _ACTIONS if name != "add"]
    adds = _adds(_fields(table, "add"))
    # rule: path-inside-table
    refuse_paths_outside(place, adds)
    return adds + [{name: _plain(fields)} for name in others for fields in _fields(table, name).to_pylist()]


def _fields(table: pa.Table, name: str) -> pa.StructArray:
    return table.column(name).combine_chunks().drop_null()


def _adds(added: pa.StructArray) -> list[Action]:
    """Return the `add` actions. They are converted column by column for speed, as there are many."""
    values = added.field("partitionValues")
    columns = {name: added.field(name).to_pylist() for name in ("path", "size", "modificationTime", "stats")}
    parts = {name: pc.map_lookup(values, name, "first").to_pylist() for name in PART_COLUMNS}
    columns["tags"] = _tags(added)
    partition_values = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    rows = zip(*columns.values(), partition_values, strict=True)
    return [{"add": dict(zip((*columns, "partitionValues"), row, strict=True))} for row in rows]


def _tags(added: pa.StructArray) -> list[Action | None]:
    """Return the tags of the files, which another program's checkpoint may lack."""
    if added.type.get_field_index("tags") < 0:
        return [None] * len(added)
    tags = added.field("tags").to_pylist()
    return [None if tag is None else dict(tag) for tag in tags]


def _plain(fields: Action) -> Action:
    """Return the fields with maps, which Arrow gives as lists of pairs, as dicts."""
    maps = {name for name, value in fields.items() if isinstance(value, list) and name != "partitionColumns"}
    return {name: dict(value) if name in maps else value for name, value in fields.items()}
