"""Lakes in folders, for tests."""

from __future__ import annotations

from pathlib import Path

from tidegate.state.delta_log.log_entries import checkpoint_key, entry_key
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake


def lake_at(folder: Path | Place) -> Lake:
    """The lake that is this folder or place."""
    return open_lake(folder if isinstance(folder, Place) else Place.of(folder))


def entry_path(log: Lake, version: int) -> Path:
    """The file of a version's entry."""
    return log.place.folder / entry_key(version)


def checkpoint_path(log: Lake, version: int) -> Path:
    """The file of a version's checkpoint."""
    return log.place.folder / checkpoint_key(version)
