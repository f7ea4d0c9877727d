"""Create the Delta table of an operator log: write its first entry."""

from __future__ import annotations

import json
from uuid import uuid4

import pyarrow as pa
from deltalake import Schema

from tidegate.contracts.log_schema import FORMAT
from tidegate.state.delta_log.actions import Action
from tidegate.state.delta_log.log_entries import put_entry
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import PosixLake

FORMAT_KEY = "tidegate.format"
"""The table property that has the version of the log's format."""

# rule: no-delta-cleanup
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",  # a foreign VACUUM spares files of a running attempt
    FORMAT_KEY: str(FORMAT),
}


def create_table(log: Lake, operator: str, schema: pa.Schema, clock_ms: int) -> None:
    """Create the table durably, unless there is one, at protocol 1/2, which every Delta reader supports.

    The table id is random. Of two drivers that create the table at once, one writes the entry, and both go on with it.
    """
    if isinstance(log, PosixLake):
        log.make_place()
    put_entry(log, 0, _first_actions(operator, schema, clock_ms))


def _first_actions(operator: str, schema: pa.Schema, clock_ms: int) -> list[Action]:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    table = {
        "id": str(uuid4()),
        "name": operator,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(schema).to_json(),
        "partitionColumns": [],
        "createdTime": clock_ms,
        "configuration": _CONFIGURATION,
    }
    shown = {"mode": "Ignore", "protocol": json.dumps(protocol), "metadata": json.dumps(table)}
    info = {
        "timestamp": clock_ms,
        "operation": "CREATE TABLE",
        "operationParameters": shown,
        "engineInfo": "tidegate",
    }
    return [{"commitInfo": info}, {"protocol": protocol}, {"metaData": table}]
