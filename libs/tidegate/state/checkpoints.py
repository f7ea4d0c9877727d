"""Checkpoints of a Delta log: the whole table in one Parquet file, so that readers replay few entries.

May import: the standard library, pyarrow, contracts, state. Written from what the driver holds in memory; the cost is
that of the live files and the tombstones, not of the log.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.contracts.errors import StateError
from tidegate.state import disk
from tidegate.state.actions import Action
from tidegate.state.log_entries import DELTA_LOG, STAGING, checkpoint_path

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
    ],
    "remove": [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())],
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


def write_checkpoint(log: Path, version: int, actions: Sequence[Action]) -> None:
    """The log has a checkpoint of those actions at the version, durably; nobody ever sees half of it."""
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(actions, _SCHEMA), body, compression="snappy", store_schema=False)
    hint = {"version": version, "size": len(actions)}
    folder = log / DELTA_LOG
    for path, data in (
        (checkpoint_path(log, version), body.getvalue()),
        (folder / "_last_checkpoint", json.dumps(hint).encode()),
    ):
        with disk.staged(log / STAGING, data) as file:
            file.replace(path)
    disk.sync(folder)


def read_checkpoint(path: Path) -> list[Action]:
    """The checkpoint's actions, whoever wrote it. StateError that names the file if it is damaged."""
    try:
        table = pq.read_table(path, columns=list(_ACTIONS))
    except pa.ArrowInvalid as error:
        raise StateError(
            "a checkpoint of the operator log is damaged",
            value=path,
            remedy="move it away and start again: the log's entries say the same, as far as they go back",
        ) from error
    return [
        {name: _plain(fields)} for name in table.column_names for fields in table.column(name).drop_null().to_pylist()
    ]


def _plain(fields: Any) -> Action:
    """The fields with maps as dicts."""
    maps = {name for name, value in fields.items() if isinstance(value, list) and name != "partitionColumns"}
    return {name: dict(value) if name in maps else value for name, value in fields.items()}
