"""The entries of a Delta log, as the fence reads them. May import: the standard library, contracts, state.decisions.

delta-rs is not asked here: it opens an empty newest entry silently, and it hides who wrote what.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.contracts.errors import StateError
from tidegate.contracts.naming import COMMIT_METADATA_KEY
from tidegate.state.decisions import Entry

DELTA_LOG = "_delta_log"


def entry_path(log: Path, version: int) -> Path:
    """Where Delta keeps the entry of a version."""
    return log / DELTA_LOG / f"{version:020d}.json"


def versions(log: Path) -> list[int]:
    """The versions that have an entry, ascending."""
    return sorted(int(path.stem) for path in (log / DELTA_LOG).glob("*.json") if path.stem.isdecimal())


def read_actions(log: Path, version: int) -> list[dict[str, Any]] | None:
    """The entry's actions; None where there is no such entry. StateError that names the file if it is cut short."""
    path = entry_path(log, version)
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return None
    except ValueError:
        actions = []
    if not actions:
        raise StateError(
            "an entry of the operator log is empty or cut short, as a loss of power leaves it",
            value=path,
            remedy="if it is the newest entry, move it away and start again: its batch is then done again",
        )
    return actions


def read_entry(log: Path, version: int) -> Entry | None:
    """What the fence needs to know of an entry; None where there is none."""
    actions = read_actions(log, version)
    return None if actions is None else _entry(version, actions)


def _entry(version: int, actions: list[dict[str, Any]]) -> Entry:
    said = next((action["commitInfo"].get(COMMIT_METADATA_KEY) for action in actions if "commitInfo" in action), None)
    meta = json.loads(said) if said else {}
    files = [action[name] for action in actions for name in ("add", "remove") if name in action]
    return Entry(
        version=version,
        epoch=meta.get("epoch"),
        attempt=meta.get("attempt"),
        changes_data=any(file.get("dataChange", True) for file in files),
    )


def entries_above(log: Path, version: int) -> list[Entry]:
    """The entries after the version, ascending, up to the first one that is missing."""
    return list(_walk(log, version + 1, step=1))


def newest_entries(log: Path, newest: int) -> list[Entry]:
    """The entries from the newest down to Tidegate's second newest: what the last driver may not have looked at."""
    found = []
    for entry in _walk(log, newest, step=-1):
        found.append(entry)
        if sum(entry.epoch is not None for entry in found) == 2:
            break
    return found


def _walk(log: Path, version: int, *, step: int) -> Iterator[Entry]:
    while (entry := read_entry(log, version)) is not None:
        yield entry
        version += step
