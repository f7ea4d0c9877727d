"""The adapter for recorded scenarios of a versioned table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.contracts.errors import UserError
from tidegate.operators.table_history.reading import Version
from tidegate.operators.table_history.versioned_table import VersionedTable


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table's answer to each operation."""
    try:
        table = VersionedTable("scenario", history_retention_ms=scenario["config"]["history_retention_ms"])
    except UserError:
        return {"exception": {"at_offset": -1}, "output": []}
    output = [
        {"after_offset": offset, "op": operation["op"]} | _answer(table, operation)
        for offset, operation in enumerate(scenario["input"])
    ]
    return {"exception": None, "output": output}


def _answer(table: VersionedTable, operation: Mapping[str, Any]) -> dict[str, Any]:
    key = operation["key"].encode()
    match operation["op"]:
        case "put":
            value = operation["value"]
            result = table.put(key, None if value is None else value.encode(), operation["timestamp"])
            return {"put": result.accepted, "valid_to": result.valid_to}
        case "delete":
            found = _found(table.delete(key, operation["timestamp"]))
            return {name: part for name, part in found.items() if name != "valid_to"}
        case "get":
            return _found(table.get(key))
        case "get_as_of":
            return _found(table.get(key, operation["as_of"]))
    rows = table.get_range(key, operation["from"], operation["to"], ascending=operation["order"] == "asc")
    return {"rows": [_row(version) for version in rows]}


def _found(version: Version | None) -> dict[str, Any]:
    return {"found": False} if version is None else {"found": True} | _row(version)


def _row(version: Version) -> dict[str, Any]:
    return {"value": version.value.decode(), "valid_from": version.valid_from, "valid_to": version.valid_to}


ADAPTERS = {"versioned_table": run}
"""The adapters by the names of recorded scenarios."""
