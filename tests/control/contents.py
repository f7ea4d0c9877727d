"""What a control database holds, and what an operator's log says about it when another program reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from sqlalchemy import text

from tidegate.control.database import Database

FROM_THE_LOGS = ("applications", "operators", "configurations", "batches", "compactions", "recoveries")
COUNTED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    """The table's rows, in the order of all columns."""
    with database.begin() as connection:
        found = [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
    return sorted(found, key=repr)


def from_the_logs(database: Database) -> dict[str, list[dict[str, Any]]]:
    """All that the database has from operator logs."""
    return {table: rows(database, table) for table in FROM_THE_LOGS}


def batches(database: Database, operator: str) -> list[dict[str, Any]]:
    """The operator's batches, oldest first, without its name."""
    found = [row for row in rows(database, "batches") if row.pop("operator") == operator and row.pop("application")]
    return sorted(found, key=lambda row: row["batch"])


def batches_of_log(log: Path) -> list[dict[str, Any]]:
    """The same from the log, by nothing but its documented format."""
    table = DeltaTable(str(log)).to_pyarrow_table(columns=["value"], filters=[("kind", "=", "meta")])
    metas = sorted((json.loads(value) for value in table.column("value").to_pylist()), key=lambda meta: meta["batch"])
    return [_row(meta) for meta in metas]


def _row(meta: dict[str, Any]) -> dict[str, Any]:
    names = ("batch", "epoch", "attempt", "action", "config")
    counted = {name: sum(counts[name] for counts in meta["counts"].values()) for name in COUNTED}
    held = {name: sum(counts[name] for counts in meta["totals"].values()) for name in ("held", "held_bytes")}
    partitions = len(meta["counts"])
    return {**{n: meta[n] for n in names}, "clock_ms": meta["clock"], "partitions": partitions, **counted, **held}
