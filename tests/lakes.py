"""Lakes in folders and object stores, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tidegate.state.delta_log.log_entries import DELTA_LOG, checkpoint_key, entry_key
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake


def lake_at(folder: Path | Place) -> Lake:
    """The lake that is this folder or place."""
    return open_lake(folder if isinstance(folder, Place) else Place.of(folder))


def named(place: Place) -> dict[str, Any]:
    """How a configuration names the place."""
    return {"lake": place.url, **({"lake_options": dict(place.options)} if place.options else {})}


def delta_table(place: Path | Place) -> DeltaTable:
    """The log as delta-rs reads it."""
    if isinstance(place, Path) or place.is_local:
        return DeltaTable(str(place))
    options, storage = dict(place.options), {}
    if "endpoint" in options:
        storage = {"AWS_ENDPOINT_URL": options["endpoint"], "AWS_ALLOW_HTTP": "true", "AWS_REGION": options["region"]}
    return DeltaTable(place.url, storage_options=storage)


def actions(log: Place) -> list[dict[str, Any]]:
    """The actions of all entries of the log, in order."""
    lake = lake_at(log)
    keys = [found.key for found in lake.list_after(DELTA_LOG) if found.key.endswith(".json")]
    entries = [lake.get(key) or b"" for key in sorted(keys)]
    return [json.loads(line) for entry in entries for line in entry.splitlines()]


def entry_path(log: Lake, version: int) -> Path:
    """The file of a version's entry."""
    return log.place.folder / entry_key(version)


def checkpoint_path(log: Lake, version: int) -> Path:
    """The file of a version's checkpoint."""
    return log.place.folder / checkpoint_key(version)
