"""The file of the rows that undo the newest batch of a local state.

It is complete before the header that relies on it is written. Like the arrays, it outlasts processes by the page cache
alone, and a reboot where it was synced with them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidegate.state.decisions import Commit

_ATTEMPT = b"tidegate.attempt"


def write(path: Path, rows: pa.Table, attempt: Commit) -> None:
    """Write the rows that undo the attempt over those of the batch before.

    To take the pages of that one again costs less than to ask for new ones.
    """
    named = rows.replace_schema_metadata({_ATTEMPT: _name(attempt)})
    path.touch()
    with path.open("r+b", buffering=0) as file, pa.ipc.new_stream(pa.PythonFile(file, "w"), named.schema) as stream:
        stream.write_table(named)


def read(path: Path, attempt: Commit) -> pa.Table | None:
    """Return the rows that undo the attempt; None if they are missing or damaged, or undo another one."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            rows = stream.read_all()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    return rows if (rows.schema.metadata or {}).get(_ATTEMPT) == _name(attempt) else None


def _name(attempt: Commit) -> bytes:
    return f"{attempt[0]} {attempt[1]}".encode()
