"""Checks a lake that is reached over a network, an object store or a file system such as NFS.

What this machine may do there, whether a put decides between writers, and how long it takes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.doctor.findings import Finding, Findings, of_error
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

FOLDER = "_tidegate/doctor"
"""Folder of the objects that the probe writes and deletes, below the lake."""

_MOUNTS = Path("/proc/mounts")
_REMOTE = re.compile(r"nfs4?|cifs|smb3|9p|ceph|lustre|glusterfs|beegfs|fuse\.(?!overlay)\S+")
"""Types of file systems that are reached over a network."""

WRITERS = 8
ROUNDS = 3
SLOW_PUT_MS = 500
"""A batch makes two to four puts after one another, so it takes at least this long twice."""

_LOST = "check the rights to list and delete there (s3:ListBucket, s3:DeleteObject)"


@dataclass(frozen=True, kw_only=True)
class StoreProbe:
    """What a probe of the place has found: `wrong` if a request failed; else what the requests showed.

    `winners`: of how many writers the put of one new object succeeded, by round. `put_ms`, `get_ms`: median time.
    `listed`: whether an object was in a listing after its put. `left`: objects that could not be deleted.
    """

    place: Place
    wrong: TidegateError | None = None
    winners: Sequence[int] = ()
    put_ms: float = 0.0
    get_ms: float = 0.0
    listed: bool = True
    left: int = 0


def collect_probe(place: Place) -> list[StoreProbe]:
    """Return the probe of a lake in an object store or on a network's file system; none for a folder of a disk.

    Its objects are deleted at the end.
    """
    if place.is_local and not (place.folder.is_dir() and is_remote(place.folder, _MOUNTS.read_text())):
        return []
    try:
        return [_probe(place, open_lake(place))]
    except TidegateError as error:
        return [StoreProbe(place=place, wrong=error)]


def is_remote(folder: Path, mounts: str) -> bool:
    """Return True if the folder is on a network's file system, according to the lines of /proc/mounts."""
    found = [line.split()[1:3] for line in mounts.splitlines()]
    parents = {str(parent) for parent in (folder.resolve(), *folder.resolve().parents)}
    # a mount hides those before it, and its blanks are written as octal numbers
    above = [(point.replace("\\040", " "), kind) for point, kind in found if point.replace("\\040", " ") in parents]
    return bool(above) and _REMOTE.fullmatch(max(reversed(above), key=lambda each: len(each[0]))[1]) is not None


def _probe(place: Place, lake: Lake) -> StoreProbe:
    folder = f"{FOLDER}/{secrets.token_hex(8)}"
    keys = [f"{folder}/{number}" for number in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            winners = [_winners(lake, key, pool) for key in keys]
        put_ms = median(_took_ms(lambda key=key: lake.put(key, b"probe")) for key in keys)  # type: ignore[misc]
        get_ms = median(_took_ms(lambda key=key: lake.get(key)) for key in keys)  # type: ignore[misc]
        listed = {found.key for found in lake.list_after(folder)} == set(keys)
    finally:
        lake.delete(keys)
    left = sum(lake.get(key) is not None for key in keys)
    return StoreProbe(place=place, winners=winners, put_ms=put_ms, get_ms=get_ms, listed=listed, left=left)


def _winners(lake: Lake, key: str, pool: ThreadPoolExecutor) -> int:
    return sum(pool.map(lambda writer: lake.put_if_absent(key, b"writer %d" % writer), range(WRITERS)))


def _took_ms(action: Callable[[], object]) -> float:
    started = SYSTEM_CLOCK.monotonic()
    action()
    return (SYSTEM_CLOCK.monotonic() - started) * 1000


def store_answers(probe: StoreProbe) -> Findings:
    """Report a lake that refuses this machine or does not answer."""
    if probe.wrong is not None:
        yield of_error("lake", probe.wrong)


def store_decides_between_writers(probe: StoreProbe) -> Findings:
    """Report a store in which several writers of one object succeed: two drivers could then commit the same version."""
    if any(winners != 1 for winners in probe.winners):
        yield _finding(
            probe,
            "the store does not decide between writers of one object, so logs there can be damaged",
            f"{', '.join(map(str, probe.winners))} of {WRITERS} writers succeeded",
            "use a file system whose hard links are atomic"
            if probe.place.is_local
            else "use a store that keeps If-None-Match: *, such as S3 itself",
        )


def store_lists_and_deletes(probe: StoreProbe) -> Findings:
    """Report objects that were not listed or not deleted."""
    if not probe.listed:
        yield _finding(probe, "the object store does not list an object that was just written", FOLDER, _LOST)
    if probe.left:
        yield _finding(probe, "objects in the lake cannot be deleted", f"{probe.left} below {FOLDER}", _LOST)


def store_is_fast(probe: StoreProbe) -> Findings:
    """Report a store that is so slow that micro-batches take seconds."""
    if probe.put_ms > SLOW_PUT_MS:
        yield _finding(
            probe,
            "the lake is slow: a batch waits for several puts",
            f"put {probe.put_ms:.0f} ms, get {probe.get_ms:.0f} ms",
            "run the service in the bucket's region, or raise `trigger`",
        )


def _finding(probe: StoreProbe, problem: str, value: str, remedy: str) -> Finding:
    return Finding(about="lake", problem=problem, value=f"{probe.place}: {value}", remedy=remedy)


STORE_CHECKS = (store_answers, store_decides_between_writers, store_lists_and_deletes, store_is_fast)
