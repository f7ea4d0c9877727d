"""The file of the rows that undo the newest batch of a local state. May import: the standard library, pyarrow.

It is complete before the header that relies on it is written. Like the arrays, it outlasts processes by the page cache
alone, and a reboot where it was synced with them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def write(path: Path, rows: pa.Table) -> None:
    """Write the rows over those of the batch before: to take its pages again costs less than to ask for new ones."""
    path.touch()
    with path.open("r+b", buffering=0) as file, pa.ipc.new_stream(pa.PythonFile(file, "w"), rows.schema) as stream:
        stream.write_table(rows)


def read(path: Path) -> pa.Table | None:
    """Return the rows that were written last; None if they are missing or damaged."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            return stream.read_all()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
