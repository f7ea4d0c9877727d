"""The files in which a table's readers say what they still need.

One file for each reader, `_readers/<reader>.json` in the folder of the table's log. It is no part of the Delta table.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.state.alignment import Lease

FOLDER = "_readers"


def path_of(log: Path, reader: str) -> Path:
    """Return the file of the reader's lease."""
    return log / FOLDER / f"{reader}.json"


def write(log: Path, reader: str, lease: Lease) -> None:
    """Put the reader's lease in the place of its former one, at once. Raises OSError."""
    folder = log / FOLDER
    folder.mkdir(exist_ok=True)
    new = folder / f"{reader}-{lease.epoch}.new"  # two drivers never have the same epoch
    new.write_text(lease.to_json())
    new.replace(path_of(log, reader))


def read(log: Path, clock: int) -> dict[str, Lease]:
    """Return the lease of each reader of the table.

    One that cannot be understood is as one of now that needs everything: nothing is lost for a damaged file.
    """
    return {path.stem: _lease(path, clock) for path in sorted((log / FOLDER).glob("*.json"))}


def _lease(path: Path, clock: int) -> Lease:
    try:
        return Lease.from_json(path.read_text())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Lease(0, clock, {})
