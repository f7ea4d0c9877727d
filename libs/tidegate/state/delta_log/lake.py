"""The lake, as a driver and its tasks reach it: what they write there, and the rows that they read.

Everything else is looked up in the folder itself: names, entries and checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidegate.state import leases
from tidegate.state.alignment_decisions import Lease
from tidegate.state.delta_log.creation import create_table
from tidegate.state.delta_log.data_files import ANY_BATCH, DataFile, read_files, write_parquet
from tidegate.state.delta_log.log_entries import put_entry


class Lake(Protocol):
    """The operations on the files of a lake. It travels to tasks, so it has to be picklable."""

    def create_table(self, path: Path, operator: str, schema: pa.Schema) -> None:
        """Create the table of an operator's log; see `creation.create_table`."""
        ...

    def put_entry(self, log: Path, version: int, actions: Sequence[dict[str, Any]]) -> bool:
        """Write the entry of the version if there is none; see `log_entries.put_entry`."""
        ...

    def write_parquet(self, table: pa.Table, path: Path, *, sync: bool) -> None:
        """Write the rows to a new data file; see `data_files.write_parquet`."""
        ...

    def read_files(
        self,
        log: Path,
        files: Iterable[DataFile],
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        *,
        after_batch: int = -1,
        up_to: int = ANY_BATCH,
    ) -> pa.Table:
        """Return rows of data files; see `data_files.read_files`."""
        ...

    def write_lease(self, log: Path, reader: str, lease: Lease) -> None:
        """Replace the lease of a table's reader; see `leases.write`."""
        ...


@dataclass(frozen=True)
class MountedLake:
    """A lake that is a folder of a mounted file system."""

    create_table = staticmethod(create_table)
    put_entry = staticmethod(put_entry)
    write_parquet = staticmethod(write_parquet)
    read_files = staticmethod(read_files)
    write_lease = staticmethod(leases.write)


MOUNTED_LAKE = MountedLake()
