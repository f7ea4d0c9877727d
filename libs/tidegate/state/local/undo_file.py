"""Write and read the undo file of a local state: the rows that undo the newest batch.

The file is complete before the header that relies on it is written. Like the arrays, it survives the process because
its pages are in the page cache, and a reboot only if it was synced together with the arrays.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from tidegate.state.protocol_decisions import Commit

_ATTEMPT = b"tidegate.attempt"


def write(path: Path, rows: pa.Table, attempt: Commit) -> None:
    """Write the rows that undo the attempt, over the rows of the batch before.

    The file is overwritten in place because reusing its pages costs less than allocating new ones.
    """
    named = rows.replace_schema_metadata({_ATTEMPT: _name(attempt)})
    content = pa.BufferOutputStream()  # Arrow writes each buffer by itself, some for each column
    with pa.ipc.new_stream(content, named.schema) as stream:
        stream.write_table(named)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "wb") as file:
        file.write(content.getvalue())


def read(path: Path, attempt: Commit) -> pa.Table | None:
    """Return the rows that undo the attempt; None if they are missing or damaged, or belong to another attempt."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            rows = stream.read_all()
    # rule: undo-readable/file
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    # rule: undo-names-attempt
    return rows if (rows.schema.metadata or {}).get(_ATTEMPT) == _name(attempt) else None


def _name(attempt: Commit) -> bytes:
    return f"{attempt[0]} {attempt[1]}".encode()
