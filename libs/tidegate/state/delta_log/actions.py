"""Build and parse Delta actions as JSON objects.

Delta's protocol specification defines their fields; the table is at protocol 1/2.
"""

from __future__ import annotations

import json
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.naming import COMMIT_METADATA_KEY, app_transaction_id
from tidegate.state.delta_log.data_files import ANY_BATCH, DataFile, Part

Action = dict[str, Any]
"""An action, which is one line of a log entry, as {name: fields}; or its fields alone."""

PARTS_TAG = "tidegate.parts"
"""The tag of a data file that says whose rows it has: [kind, partition, rows] of each of its parts, as JSON."""


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
            **_tags(file),
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
    """Return the file that the fields of an `add` describe; without statistics its rows may be of any batch.

    A file that another program wrote into a log of format 3 does not say what its parts are.
    """
    values, statistics = dict(added["partitionValues"]), json.loads(added.get("stats") or "{}")
    tag, partitioned = (added.get("tags") or {}).get(PARTS_TAG), values.get("kind") is not None
    parts = None if tag is None else tuple(Part(*part) for part in json.loads(tag))
    if partitioned:
        parts = (Part(values["kind"], int(values["partition"]), statistics.get("numRecords", 0)),)
    return DataFile(
        path=added["path"],
        parts=parts,
        partitioned=partitioned,
        size=added["size"],
        min_batch=_or(statistics.get("minValues", {}).get("batch"), -1),
        max_batch=_or(statistics.get("maxValues", {}).get("batch"), ANY_BATCH),
        written_ms=added["modificationTime"],
    )


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _statistics(file: DataFile) -> Action:
    least: Action = {"batch": file.min_batch}
    most: Action = {"batch": file.max_batch}
    if file.parts and not file.partitioned:
        kinds, partitions = [part.kind for part in file.parts], [part.partition for part in file.parts]
        least |= {"kind": min(kinds), "partition": min(partitions)}
        most |= {"kind": max(kinds), "partition": max(partitions)}
    return {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": dict.fromkeys(least, 0),
    }


def _tags(file: DataFile) -> Action:
    if file.partitioned or file.parts is None:
        return {}
    return {"tags": {PARTS_TAG: json.dumps(file.parts, separators=(",", ":"))}}


def _partition_values(file: DataFile) -> dict[str, str]:
    return {"kind": file.kind, "partition": str(file.partition)} if file.partitioned else {}
