"""Create the Delta table of an operator log. delta-rs does it; all later entries are written by `operator_log`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tidegate.contracts.errors import Unavailable
from tidegate.contracts.log_schema import FORMAT, PARTITION_COLUMNS
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import DELTA_LOG, entry_path

FORMAT_KEY = "tidegate.format"
"""The table property that has the version of the log's format."""

# rule: no-delta-cleanup
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",  # a foreign VACUUM spares files of a running attempt
    FORMAT_KEY: str(FORMAT),
}


def create_table(path: Path, operator: str, schema: pa.Schema) -> None:
    """Create the table, unless there is one, at protocol 1/2, which every Delta reader supports; sync it to disk.

    Delta chooses the table id.
    """
    disk.make_folder(path, synced=True)
    try:
        DeltaTable.create(
            str(path),
            schema=Schema.from_arrow(schema),
            mode="ignore",
            partition_by=PARTITION_COLUMNS,
            name=operator,
            configuration=_CONFIGURATION,
            raise_if_key_not_exists=False,
        )
    except DeltaError as error:
        raise Unavailable(f"the lake failed: {error}", value=path, remedy="check the lake") from error
    for written in (entry_path(path, 0), path / DELTA_LOG, path):
        disk.sync(written)
