"""The simulated lake: unclear commits, full and failing stores, an unmounted lake, and OPTIMIZE by another program.

All objects are in memory. Faults occur in calls of the port, as a file system or an object store would have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from pyarrow import fs

from tidegate.contracts.batch_metadata import BatchMeta, after_document
from tidegate.contracts.errors import Unavailable
from tidegate.contracts.log_schema import PART_COLUMNS, PARTITIONED_FORMAT
from tidegate.state import leases
from tidegate.state.delta_log import log_entries
from tidegate.state.delta_log.actions import Action, add, remove
from tidegate.state.delta_log.creation import FORMAT_KEY
from tidegate.state.delta_log.data_files import DataFile, Part, as_parquet, read_files
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.lake.as_files import as_files
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Listed
from tidegate.testing.simulation.world import World

_FATES = ("lost", "done", "late")
"""Fates of a log entry whose writer gets no answer."""
_LANDING_PROBABILITY = 0.1
_PARTITIONED = 0.3
"""How many logs are of format 2, as an earlier release has created them."""
"""Probability that a delayed entry lands when another entry is written."""
_FIRST_ENTRY = log_entries.entry_key(0)


class _Object(NamedTuple):
    data: bytes
    etag: str
    written_ms: int


@dataclass(frozen=True)
class MemoryLake:
    """The objects below one place, in memory, without faults. `objects`: those of all places, by url."""

    place: Place
    world: World
    objects: dict[str, _Object]
    numbers: Iterator[int]

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one; return False if there is another one."""
        if (there := self.get(key)) is not None:
            return there == data
        self.put(key, data)
        return True

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the object; return its ETag."""
        written = _Object(data, f"{next(self.numbers)}", self.world.clock.now_ms())
        self.objects[self._url(key)] = written
        return written.etag

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write the object."""
        self.put(key, data)

    def get(self, key: str) -> bytes | None:
        """Return the object's content; None if there is no such object."""
        found = self.objects.get(self._url(key))
        return None if found is None else found.data

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of the object from `start`; None if there is no such object."""
        found = self.get(key)
        return None if found is None else found[start : start + length]

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the objects below the folder `prefix` with keys above `after`, in the order of their keys."""
        start = self._url(prefix) + "/"
        keys = sorted(url.removeprefix(self._url("")) for url in self.objects if url.startswith(start))
        for key in keys:
            if key > after and (found := self.objects.get(self._url(key))) is not None:
                yield Listed(key, len(found.data), found.etag, found.written_ms)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; those that do not exist are ignored."""
        for key in keys:
            self.objects.pop(self._url(key), None)

    def etag(self, key: str) -> str | None:
        """Return the object's ETag; None if there is none."""
        found = self.objects.get(self._url(key))
        return None if found is None else found.etag

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return objects as a file system that Arrow reads from."""
        return as_files(self, sizes)

    def _url(self, key: str) -> str:
        return f"{self.place.url}/{key}"


class SimulatedLake:
    """The operator logs of a run; it is the opener of places in the environment of drivers and tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._objects: dict[str, _Object] = {}
        self._numbers = count(1)
        self._under_way: list[tuple[MemoryLake, str, bytes]] = []
        self._newest: dict[Place, BatchMeta] = {}
        self._created = 0
        self.is_away = False

    def __call__(self, place: Place) -> FaultyLake:
        """Return the lake at the place, with its faults."""
        return FaultyLake(self.plain(place), self)

    def plain(self, place: Place) -> MemoryLake:
        """Return the lake at the place, without faults."""
        return MemoryLake(place, self._world, self._objects, self._numbers)

    def put_entry(self, log: MemoryLake, key: str, data: bytes) -> bool:
        """Write the entry, unless its answer or the entry itself gets lost.

        Return True if the entry was written and False if the version exists already. Raise Unavailable if the outcome
        is unclear.
        """
        self._world.step("before the entry")
        self._write_some_delayed()
        self.require_mounted(log)
        if not self._world.chance.happens("unclear_commit"):
            put = self._write_entry(log, key, data)
            self._world.step("after the entry")
            return put
        fate = self._world.chance.of("fate").choice(_FATES)
        self._world.say("%s: unclear, %s", key, fate)
        if fate == "done":
            self._write_entry(log, key, data)
        if fate == "late":
            self._under_way.append((log, key, data))
        raise Unavailable("the lake does not answer", value=log.place)

    def require_mounted(self, log: MemoryLake) -> None:
        """Raise Unavailable while the lake is unmounted, as a write then does."""
        if self.is_away:
            raise Unavailable("the lake is unavailable", value=log.place)

    def optimize(self, place: Place) -> None:
        """Merge several files as `OPTIMIZE` by another program does, without a word about whose rows they have.

        In a partitioned log they are of one kind and partition.
        """
        log = self.plain(place)
        version = None if self.is_away else log_entries.newest_version(log)
        if version is None:
            return
        table = load(log, version)
        schema = pa.schema(Schema.from_json(table.metadata["schemaString"]))
        by_folder = groupby(sorted(table.files.values(), key=_folder_of), key=_folder_of)
        several = [found for _, files in by_folder if len(found := list(files)) > 1]
        if not several:
            return
        merged = self._world.chance.of("foreign_optimize").choice(several)
        partitioned = merged[0].partitioned
        rows = read_files(log, merged, schema).drop_columns(PART_COLUMNS) if partitioned else _all_rows(log, merged)
        folder = f"{_folder_of(merged[0])}/" if partitioned else ""
        content, path = as_parquet([rows]), f"{folder}part-{version:05d}.parquet"
        log.put(path, content)
        file = DataFile(
            path=path,
            parts=(Part(merged[0].kind, merged[0].partition, rows.num_rows),) if partitioned else None,
            partitioned=partitioned,
            size=len(content),
            min_batch=min(each.min_batch for each in merged),
            max_batch=max(each.max_batch for each in merged),
            written_ms=merged[0].written_ms,
        )
        removed = [remove(each, self._world.clock.now_ms()) for each in merged]
        self._world.say("OPTIMIZE as version %d: %s", version + 1, path)
        log_entries.put_entry(
            log, version + 1, [{"commitInfo": {"operation": "OPTIMIZE"}}, *removed, add(file, changes_data=False)]
        )
        self._world.note_foreign_version(place.name, version + 1)

    def finish_delayed(self) -> None:
        """Let all delayed entries land."""
        for entry in self._under_way:
            self._write_entry(*entry)
        self._under_way = []

    def _write_some_delayed(self) -> None:
        for entry in self._under_way[:]:
            if not self.is_away and self._world.chance.of("lake").random() < _LANDING_PROBABILITY:
                self._under_way.remove(entry)
                self._write_entry(*entry)

    def _write_entry(self, log: MemoryLake, key: str, data: bytes) -> bool:
        if key == _FIRST_ENTRY and log.etag(key) is None:
            data = self._with_same_id(log, data)
        is_new = log.etag(key) is None
        if not log.put_if_absent(key, data):
            return False
        document = log_entries.document_of([json.loads(line) for line in data.splitlines()])
        if is_new and document is not None:
            self._newest[log.place] = after_document(self._newest.get(log.place), document)
            version = int(key.rpartition("/")[2].partition(".")[0])
            self._world.committed(self._newest[log.place], version)
        return True

    def _with_same_id(self, log: MemoryLake, data: bytes) -> bytes:
        """Return the first entry with a table id that is the same in each run; some logs are of format 2."""
        self._created += 1
        actions = [json.loads(line) for line in data.splitlines()]
        table_id = {"id": f"{log.place.name}-{self._created}"}
        if self._world.chance.of("log_format").random() < _PARTITIONED and not any(map(_is_of_steps, actions)):
            actions = [as_partitioned(action) for action in actions]
        return log_entries.encoded(
            action | {"metaData": action["metaData"] | table_id} if "metaData" in action else action
            for action in actions
        )


class FaultyLake:
    """The lake at one place, as drivers and tasks reach it; while it is unmounted, it is empty and refuses writes."""

    def __init__(self, plain: MemoryLake, lake: SimulatedLake) -> None:
        self._plain, self._lake, self._world = plain, lake, plain.world

    @property
    def place(self) -> Place:
        """Return where the lake is."""
        return self._plain.place

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one; the outcome may be unclear for an entry."""
        if key.startswith(log_entries.DELTA_LOG):
            return self._lake.put_entry(self._plain, key, data)
        self._lake.require_mounted(self._plain)
        return self._plain.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the object, unless a lease gets lost."""
        lease = key.startswith(leases.FOLDER)
        if lease:
            self._world.step("before a lease")
        if lease and self._world.chance.happens("lost_lease"):
            raise Unavailable("the lake failed", value=self.place / key)
        self._lake.require_mounted(self._plain)
        etag = self._plain.put(key, data)
        if lease:
            self._world.step("after a lease")
        return etag

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write a data file, unless the lake is full."""
        self._world.step("before a data file")
        if self._world.chance.happens("disk_full"):
            raise Unavailable("the lake failed", value=self.place / key)
        self._lake.require_mounted(self._plain)
        self._plain.put_unnamed(key, data)

    def get(self, key: str) -> bytes | None:
        """Return the object's content; None if there is no such object."""
        return None if self._lake.is_away else self._plain.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of the object from `start`; None if there is no such object."""
        return None if self._lake.is_away else self._plain.get_range(key, start, length)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the objects below the folder; a listing of the log may lack the newest one."""
        found = [] if self._lake.is_away else list(self._plain.list_after(prefix, after))
        if prefix == log_entries.DELTA_LOG and self._world.chance.happens("stale_listing"):
            found = found[:-1]
        return iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; those that do not exist are ignored."""
        if not self._lake.is_away:
            self._plain.delete(keys)

    def etag(self, key: str) -> str | None:
        """Return the object's ETag; None if there is none."""
        return None if self._lake.is_away else self._plain.etag(key)

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return objects as files, unless the lake fails."""
        if self._world.chance.happens("lake_failure"):
            raise Unavailable("the lake failed", value=self.place)
        return as_files(self, sizes)


def as_partitioned(action: Action) -> Action:
    """Return the action of a first entry as one of format 2 had it."""
    if "metaData" not in action:
        return action
    table = action["metaData"]
    schema = json.loads(table["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "step"]
    configuration = table["configuration"] | {FORMAT_KEY: str(PARTITIONED_FORMAT)}
    changed = {"schemaString": json.dumps(schema), "partitionColumns": PART_COLUMNS, "configuration": configuration}
    return {"metaData": table | changed}


def _is_of_steps(action: Action) -> bool:
    """Return whether the action is the schema of a pipeline's log, which no earlier format could have."""
    return '"source"' in action.get("metaData", {}).get("schemaString", "")


def _all_rows(log: MemoryLake, files: Sequence[DataFile]) -> pa.Table:
    contents = [pq.read_table(pa.BufferReader(log.get(file.path))) for file in files]
    return pa.concat_tables(contents, promote_options="default")


def _folder_of(file: DataFile) -> str:
    return file.path.rpartition("/")[0]
