"""Requests to an object store, and what they cost a day: an operator's log over a lake that counts, no Spark, no Kafka.

Each request of the log is counted as an object store charges for it, over as many batches as lie between two
compactions, the second compaction and its clean-up included. The renewals of the lease and the looks of a driver follow
from their intervals. `tests/lake/test_requests.py` counts those of a running driver through a proxy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

from pyarrow import fs

from benchmarks.commits import small_rows
from tidegate.contracts.batch_metadata import BatchMeta, PartitionMeta
from tidegate.contracts.log_schema import log_schema
from tidegate.runtime.batch_loop.driver import LONGEST_WAIT_S
from tidegate.runtime.batch_loop.lease_holder import LOOK_S
from tidegate.runtime.batch_loop.next_metadata import first_meta
from tidegate.runtime.configuration.application import TAKEOVER_AFTER_REMOTE_MS
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.delta_log.recent_entries import LOOK_EVERY_S
from tidegate.state.lake.as_files import KeptContents, as_files
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Listed
from tidegate.state.lease_decisions import renewal_s
from tidegate.state.protocol_decisions import MAX_BATCHES
from tidegate.state.request_budget import DAY_S, GET_USD, PUT_USD
from tidegate.state.upkeep.compaction import Kept, compact

OPERATOR, TASKS = "lake", 2
EVERY_S = 5.0
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class CountingLake:
    """Objects in memory; counts requests as an object store does: deletions cost nothing."""

    def __init__(self) -> None:
        self.place, self.requests = Place.of("s3://counted/log"), Counter[str]()
        self._objects: dict[str, bytes] = {}
        self._kept = KeptContents()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one."""
        self.requests["PUT"] += 1
        return self._objects.setdefault(key, data) is data

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the object; return its ETag."""
        self.requests["PUT"] += 1
        self._objects[key] = data
        return "etag"

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write the object."""
        self.put(key, data)

    def get(self, key: str) -> bytes | None:
        """Return the object's content."""
        self.requests["GET"] += 1
        return self._objects.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return some bytes of the object."""
        found = self.get(key)
        return None if found is None else found[start : start + length]

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the objects below the folder, a thousand for each request."""
        found = sorted(key for key in self._objects if key.startswith(f"{prefix}/") and key > after)
        self.requests["LIST"] += 1
        for at, key in enumerate(found):
            self.requests["LIST"] += at > 0 and at % 1_000 == 0
            yield Listed(key, len(self._objects[key]), "etag", 0)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects."""
        for key in keys:
            self._objects.pop(key, None)

    def etag(self, key: str) -> str | None:
        """Return the object's ETag."""
        self.requests["HEAD"] += 1
        return "etag" if key in self._objects else None

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return objects as files."""
        return as_files(self, sizes, self._kept)


def measure(say: Callable[[str], None] = print) -> dict[str, float]:
    """Return requests of a batch, and dollars a day at list prices, by the number of partitions."""
    standing = standing_requests()
    figures = {"usd_a_day_idle": usd(standing) + idle_looks_usd()}
    for partitions in (4, 16):
        found = requests_per_batch(partitions)
        say(f"{partitions} partitions: {dict(found)}")
        batches = DAY_S / EVERY_S
        figures |= {f"{kind.lower()}_per_batch_{partitions}p": found[kind] for kind in ("PUT", "GET", "HEAD", "LIST")}
        figures[f"usd_a_day_every_5s_{partitions}p"] = usd(standing) + batches * usd(found)
    return figures


def standing_requests() -> dict[str, float]:
    """Return what a driver asks for a day beside its batches: it renews its lease and looks for requests."""
    return {"PUT": DAY_S / renewal_s(TAKEOVER_AFTER_REMOTE_MS), "GET": DAY_S / LOOK_S}


def idle_looks_usd() -> float:
    """Return what the rounds of an operator without records cost a day: its own entry, and a newer one."""
    return 2 * DAY_S / LONGEST_WAIT_S * GET_USD


def usd(requests: Mapping[str, float]) -> float:
    """Return the price of the requests."""
    dear, cheap = (sum(requests.get(kind, 0) for kind in kinds) for kinds in (("PUT", "LIST"), ("GET", "HEAD")))
    return dear * PUT_USD + cheap * GET_USD


def requests_per_batch(partitions: int) -> dict[str, float]:
    """Return the mean requests of a batch with rows in all partitions, upkeep and looks at entries included."""
    lake = CountingLake()
    log = OperatorLog.open(lake, OPERATOR, log_schema(), create=True)
    for number in range(1, MAX_BATCHES):  # for the clean-up of the second compaction
        log.commit(_meta(log, number, partitions, "batch"), [])
    _compact(log, MAX_BATCHES, partitions)
    lake.requests.clear()
    for number in range(MAX_BATCHES + 1, 2 * MAX_BATCHES):
        log.check_own_entry()
        _commit(log, number, partitions)
    _compact(log, 2 * MAX_BATCHES, partitions)
    lake.requests["LIST"] += round(MAX_BATCHES * EVERY_S / LOOK_EVERY_S)  # the look at recent entries, by the clock
    return {kind: count / MAX_BATCHES for kind, count in lake.requests.items()}


def _commit(log: OperatorLog, number: int, partitions: int) -> None:
    meta = _meta(log, number, partitions, "batch")
    naming = Naming(log.format, meta.batch, meta.attempt, meta.clock)
    files = list[DataFile]()
    for task in range(TASKS):
        own = range(task, partitions, TASKS)
        rows = [Rows(kind, partition, small_rows(kind)) for kind in ("state", "emission") for partition in own]
        files += write_rows(log.lake, naming, rows, topic="t")
    log.commit(meta, files)


def _compact(log: OperatorLog, number: int, partitions: int) -> None:
    meta = _meta(log, number, partitions, "compaction")
    compact(log, replace(meta, recorded=number - 1), Kept(slot=("key",)), rewind_window_ms=HOUR_MS)


def _meta(log: OperatorLog, number: int, partitions: int, action: str) -> BatchMeta:
    attempt, clock = uuid4().hex, START_MS + int(number * EVERY_S * 1_000)
    known = PartitionMeta(next_offset=number, stream_time=number, last=(number, attempt))
    before = log.newest()
    return replace(
        first_meta(OPERATOR, log.table_id, clock, {"t": {}}),
        epoch=1,
        batch=number,
        attempt=attempt,
        action=action,
        recorded=-1 if before is None else before.recorded,
        partitions=dict.fromkeys(range(partitions), known),
    )
