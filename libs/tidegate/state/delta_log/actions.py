"""Build and parse Delta actions as JSON objects.

Delta's protocol specification defines their fields; the table is at protocol 1/2.
"""

from __future__ import annotations

import json
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.naming import COMMIT_METADATA_KEY, app_transaction_id
from tidegate.state.delta_log.data_files import ANY_BATCH, DataFile

Action = dict[str, Any]
"""An action, which is one line of a log entry, as {name: fields}; or its fields alone."""


def commit_info(meta: BatchMeta, document: str) -> Action:
    """Return the `commitInfo` action: fields for Delta's tools, and the batch's metadata, which the fence reads."""
    # rule: metadata-in-entry
    return {
        "commitInfo": {
            "timestamp": meta.clock,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "action": meta.action},
            "engineInfo": "tidegate",
            COMMIT_METADATA_KEY: document,
        }
    }


def transaction(meta: BatchMeta) -> Action:
    """Return the application transaction (`txn` action); its version is the batch."""
    return {"txn": {"appId": app_transaction_id(meta.operator), "version": meta.batch}}


def add(file: DataFile, *, changes_data: bool) -> Action:
    """Return the action that adds the file to the table."""
    return {
        "add": {
            "path": file.path,
            "partitionValues": _partition_values(file),
            "size": file.size,
            "modificationTime": file.written_ms,
            "dataChange": changes_data,
            "stats": json.dumps(_statistics(file), separators=(",", ":")),
        }
    }


def remove(file: DataFile, clock_ms: int) -> Action:
    """Return the action that removes the file from the table, with `dataChange` false.

    Its rows are in other files, or retention dropped them, which a stream that reads the log must not see as a change.
    """
    # rule: compaction-changes-no-data/removed
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": clock_ms,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": _partition_values(file),
            "size": file.size,
        }
    }


def data_file(added: Action) -> DataFile:
    """Return the file that the fields of an `add` describe; without statistics its rows may be of any batch."""
    values, statistics = dict(added["partitionValues"]), json.loads(added.get("stats") or "{}")
    return DataFile(
        path=added["path"],
        kind=values["kind"],
        partition=int(values["partition"]),
        rows=statistics.get("numRecords", 0),
        size=added["size"],
        min_batch=_or(statistics.get("minValues", {}).get("batch"), -1),
        max_batch=_or(statistics.get("maxValues", {}).get("batch"), ANY_BATCH),
        written_ms=added["modificationTime"],
    )


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _statistics(file: DataFile) -> Action:
    batches = {"minValues": {"batch": file.min_batch}, "maxValues": {"batch": file.max_batch}}
    return {"numRecords": file.rows, **batches, "nullCount": {"batch": 0}}


def _partition_values(file: DataFile) -> dict[str, str]:
    return {"kind": file.kind, "partition": str(file.partition)}
