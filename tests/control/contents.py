"""The contents of a control database, and the contents of an operator's log as another program reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import text

from tests.lakes import actions, delta_table
from tidegate.control.database import Database
from tidegate.state.lake.place import Place

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


OF_A_BATCH_ALONE = ("counts", "measures", "opened", "skipped", "recovered")


def batches_of_log(log: Path | Place) -> list[dict[str, Any]]:
    """The same from the log, by nothing but its documented format."""
    metas: list[dict[str, Any]] = []
    for document in _documents(log):
        before = {name: value for name, value in metas[-1].items() if name not in OF_A_BATCH_ALONE} if metas else {}
        metas.append(_merged(before, document) if "base" in document else document)
    return [_row(meta) for meta in metas]


def _documents(log: Path | Place) -> list[dict[str, Any]]:
    """What batches have written: rows up to the newest compaction, entries since; from the first complete one on."""
    table = delta_table(log).to_pyarrow_table(columns=["value"], filters=[("kind", "=", "meta")])
    place = log if isinstance(log, Place) else Place.of(log)
    infos = [action["commitInfo"] for action in actions(place) if "commitInfo" in action]
    said = {document["batch"]: document for info in infos if (document := json.loads(info.get("tidegate", "{}")))}
    rows = {document["batch"]: document for document in map(json.loads, table.column("value").to_pylist())}
    recorded = said[max(said)].get("recorded") or _merged_all(said)["recorded"]
    kept = rows | {batch: document for batch, document in said.items() if batch > recorded}
    found = [kept[batch] for batch in sorted(kept)]
    return found[next(place for place, document in enumerate(found) if "base" not in document) :]


def _merged_all(said: dict[int, dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for batch in sorted(said):
        whole = _merged(whole, said[batch])
    return whole


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not (isinstance(before, dict) and isinstance(patch, dict)):
        return patch
    now = before | {name: _merged(before.get(name), value) for name, value in patch.items()}
    return {name: value for name, value in now.items() if value is not None}


def _row(meta: dict[str, Any]) -> dict[str, Any]:
    names = ("batch", "epoch", "attempt", "action", "config")
    counted = {name: sum(counts[name] for counts in meta.get("counts", {}).values()) for name in COUNTED}
    held = {name: sum(counts[name] for counts in meta["totals"].values()) for name in ("held", "held_bytes")}
    partitions = len(meta.get("counts", {}))
    return {**{n: meta[n] for n in names}, "clock_ms": meta["clock"], "partitions": partitions, **counted, **held}
