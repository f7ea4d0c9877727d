"""Read and write lease files, in which the readers of a table state which event times they still need.

Each reader has one file, `_readers/<reader>.json`, in the folder of the table's log. It is not part of the Delta table.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.state.alignment_decisions import Lease

FOLDER = "_readers"


def path_of(log: Path, reader: str) -> Path:
    """Return the path of the reader's lease file."""
    return log / FOLDER / f"{reader}.json"


def write(log: Path, reader: str, lease: Lease) -> None:
    """Replace the lease file of the reader atomically. Raise OSError if that fails."""
    folder = log / FOLDER
    folder.mkdir(exist_ok=True)
    new = folder / f"{reader}-{lease.epoch}.new"  # the epoch keeps two drivers from using the same file
    new.write_text(lease.to_json())
    new.replace(path_of(log, reader))


def read(log: Path, clock: int) -> dict[str, Lease]:
    """Return the lease of each reader of the table.

    Treat an unreadable lease file as a lease that was written at `clock` and does not say what it needs, so that a
    damaged file never causes data to expire.
    """
    return {path.stem: _lease(path, clock) for path in sorted((log / FOLDER).glob("*.json"))}


def _lease(path: Path, clock: int) -> Lease:
    try:
        return Lease.from_json(path.read_text())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # rule: bad-lease-releases-nothing/unreadable
        return Lease(0, clock, {})
