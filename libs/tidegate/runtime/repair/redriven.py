"""The record of which late and rejected records were redriven before.

A run of `tidegate redrive` has objects in the folder `_redriven` of the operator's log. Before its first record is
sent, the run is claimed by its number: `<number>.pending.parquet` has the places of the records to send. When it is
over, `<number>.parquet` has the places of those that were sent. Each partition's Kafka transaction has a mark with the
number of the run, which shows after an interruption which partitions were sent. A redrive that finds an unfinished run
takes it over (`<number>.taken`): it fences the run's transactions, and the run sends nothing more.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.contracts.errors import UserError
from tidegate.state.lake.port import Lake

Place = tuple[int, int]
"""The partition and offset at which a record was read."""

FOLDER = "_redriven"
_SCHEMA = pa.schema({"partition": pa.int32(), "offset": pa.int64()})
_NAME = re.compile(rf"{FOLDER}/(\d+)(\.pending)?\.parquet")
_REMEDY = "wait for its end, and run it again"


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

    def __init__(self, log: Lake) -> None:
        self._log = log

    def places(self) -> frozenset[Place]:
        """Return the places of the records of all runs."""
        finished, pending = self._runs()
        return frozenset().union(*(self._read(_finished(number)) for number in finished), *map(self._begun, pending))

    def pending(self) -> list[Run]:
        """Return the runs that are not finished."""
        return [Run(number, self._begun(number)) for number in self._runs()[1]]

    def next_number(self) -> int:
        """Return the number of the next run."""
        finished, pending = self._runs()
        return 1 + max(finished | pending, default=0)

    def begin(self, number: int, places: Iterable[Place]) -> Run:
        """Claim the run of that number for these records and return it.

        `number` is the next one as of the time when the records were chosen. Raise UserError if another redrive has
        claimed it since: some of these records may be among those that it sends.
        """
        run = Run(number, frozenset(places))
        # rule: redrive-claimed
        if not self._log.put_if_absent(_pending(number), _encoded(run.places)):
            raise UserError("another redrive of the operator is under way", value=f"run {number}", remedy=_REMEDY)
        return run

    def take_over(self, run: Run) -> None:
        """Keep the run from sending further records: the caller finishes it."""
        self._log.put(_taken(run.number), b"")

    def check_not_taken(self, run: Run) -> None:
        """Raise UserError if another redrive has taken the run over. Ask between a transaction's fence and its end."""
        # rule: redrive-taken-over
        if self._log.etag(_taken(run.number)) is not None:
            raise UserError("another redrive of the operator has taken over", value=f"run {run.number}", remedy=_REMEDY)

    def finish(self, run: Run, sent: frozenset[Place]) -> None:
        """Record that the run is over and which of its records were sent."""
        self._log.put(_finished(run.number), _encoded(sent))

    def _runs(self) -> tuple[set[int], set[int]]:
        """Return the numbers of the finished runs and of the others."""
        names = [name for found in self._log.list_after(FOLDER) if (name := _NAME.fullmatch(found.key))]
        finished = {int(name[1]) for name in names if name[2] is None}
        return finished, {int(name[1]) for name in names} - finished

    def _begun(self, number: int) -> frozenset[Place]:
        return self._read(_pending(number))

    def _read(self, key: str) -> frozenset[Place]:
        rows = pq.read_table(pa.BufferReader(self._log.get(key) or b""))
        return frozenset(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def _encoded(places: frozenset[Place]) -> bytes:
    """Return the content of a run's object, which no other run has."""
    columns = zip(*sorted(places), strict=True) if places else ((), ())
    body = io.BytesIO()
    pq.write_table(pa.table(list(columns), schema=_SCHEMA.with_metadata({"run": uuid4().hex})), body)
    return body.getvalue()


def _finished(number: int) -> str:
    return f"{FOLDER}/{number:06}.parquet"


def _pending(number: int) -> str:
    return f"{FOLDER}/{number:06}.pending.parquet"


def _taken(number: int) -> str:
    return f"{FOLDER}/{number:06}.taken"
