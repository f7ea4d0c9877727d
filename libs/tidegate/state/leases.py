"""Read and write lease files, in which the readers of a table state which event times they still need.

Each reader has one file, `_readers/<reader>.json`, in the folder of the table's log. It is not part of the Delta table.
"""

from __future__ import annotations

import re

from tidegate.contracts.errors import EngineError
from tidegate.state.alignment_decisions import Lease
from tidegate.state.lake.port import Lake

FOLDER = "_readers"

_NAME = re.compile(rf"{FOLDER}/([^/]+)\.json")


def key_of(reader: str) -> str:
    """Return the key of the reader's lease."""
    return f"{FOLDER}/{reader}.json"


def write(log: Lake, reader: str, lease: Lease) -> None:
    """Replace the lease of the reader."""
    log.put(key_of(reader), lease.to_json().encode())


def read(log: Lake, clock: int) -> dict[str, Lease]:
    """Return the lease of each reader of the table.

    Treat an unreadable lease file as a lease that was written at `clock` and does not say what it needs, so that a
    damaged file never causes data to expire.
    """
    readers = [named[1] for found in log.list_after(FOLDER) if (named := _NAME.fullmatch(found.key))]
    return {reader: _lease(log, reader, clock) for reader in readers}


def _lease(log: Lake, reader: str, clock: int) -> Lease:
    try:
        return Lease.from_json((log.get(key_of(reader)) or b"").decode())
    except (EngineError, ValueError, KeyError, TypeError, AttributeError):
        # rule: bad-lease-releases-nothing/unreadable
        return Lease(0, clock, {})
