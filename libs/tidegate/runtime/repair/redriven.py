"""The record of which late and rejected records were redriven before.

A run of `tidegate redrive` is a file in the folder `_redriven` of the operator's log, with the places of the records to
send. It is written before the first of them is sent, and is `pending` until all are sent. Each partition's Kafka
transaction has a mark with the number of the run, which shows after an interruption which partitions were sent.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.contracts.errors import UserError
from tidegate.state import disk

Place = tuple[int, int]
"""The partition and offset at which a record was read."""

_SCHEMA = pa.schema({"partition": pa.int32(), "offset": pa.int64()})
_NAME = re.compile(r"(\d+)(\.pending)?\.parquet")


class Run(NamedTuple):
    """A run of redrive: its number, and the places of the records that it sends."""

    number: int
    places: frozenset[Place]

    @property
    def partitions(self) -> list[int]:
        """Return the partitions with records in this run, ascending."""
        return sorted({partition for partition, _ in self.places})


def format_mark(table_id: str, run: int) -> str:
    """Return the metadata string of the offset commit in the same transaction as a partition's records."""
    return f"tidegate-redriven/1 {table_id} {run}"


def really_sent(run: Run, table_id: str, marks: Mapping[int, str]) -> frozenset[Place]:
    """Return which records of the newest run were sent: those of the partitions that have its mark."""
    mark = format_mark(table_id, run.number)
    return frozenset(place for place in run.places if marks.get(place[0]) == mark)


class Redriven:
    """The redrive runs of one operator."""

    def __init__(self, log: Path) -> None:
        self._folder = log / "_redriven"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other redrives of the operator while the block runs. Raise UserError if one is running."""
        disk.make_folder(self._folder, synced=True)
        with (self._folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError("another redrive of the operator is under way", remedy="wait for its end") from None
            yield

    def places(self) -> frozenset[Place]:
        """Return the places of the records of all runs."""
        return frozenset(place for _, _, path in self._runs() for place in _read(path))

    def pending(self) -> list[Run]:
        """Return the runs that were interrupted."""
        return [Run(number, frozenset(_read(path))) for number, pending, path in self._runs() if pending]

    def begin(self, places: Iterable[Place]) -> Run:
        """Write a new pending run for these records and return it."""
        run = Run(1 + max((number for number, _, _ in self._runs()), default=0), frozenset(places))
        self._write(run)
        return run

    def finish(self, run: Run, sent: frozenset[Place]) -> None:
        """Record that the run is over and which of its records were sent."""
        if sent != run.places:
            self._write(Run(run.number, sent))
        self._path(run.number, pending=True).rename(self._path(run.number, pending=False))
        disk.sync(self._folder)

    def _runs(self) -> list[tuple[int, bool, Path]]:
        found = [(_NAME.fullmatch(path.name), path) for path in sorted(self._folder.glob("*.parquet"))]
        return [(int(name[1]), name[2] is not None, path) for name, path in found if name is not None]

    def _path(self, number: int, *, pending: bool) -> Path:
        return self._folder / f"{number:06}{'.pending' * pending}.parquet"

    def _write(self, run: Run) -> None:
        """Write the file of the pending run atomically, and sync it."""
        path, unfinished = self._path(run.number, pending=True), self._folder / "unfinished"
        columns = zip(*sorted(run.places), strict=True) if run.places else ((), ())
        pq.write_table(pa.table(list(columns), schema=_SCHEMA), unfinished)
        disk.sync(unfinished)
        unfinished.rename(path)
        disk.sync(self._folder)


def _read(path: Path) -> Iterator[Place]:
    rows = pq.read_table(path)
    return zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
