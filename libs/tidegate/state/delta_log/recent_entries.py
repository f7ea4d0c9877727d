"""The entries that a driver has committed within the last minutes: another program may replace one of them late.

Spark's own writer puts entries on S3 without a condition. It looks for the entry first, so its put replaces a commit
that was made in between. By then the driver may have committed further entries.
"""

from __future__ import annotations

from hashlib import md5
from typing import NamedTuple

from tidegate.contracts.clock import Clock
from tidegate.state.delta_log.log_entries import DELTA_LOG, entry_key
from tidegate.state.lake.port import Lake

LOOK_EVERY_S = 60.0
"""Interval of the looks, each of which is one listing. An entry is looked at until it is that old."""


class _Entry(NamedTuple):
    digest: str
    committed_at: float


class RecentEntries:
    """The digests of a driver's own entries in an object store, by version, until a look has found them unchanged.

    In a folder no program can replace an entry: there a commit is a hard link or a rename that refuses to.
    """

    def __init__(self, lake: Lake, clock: Clock) -> None:
        self._lake, self._clock = lake, clock
        self._entries: dict[int, _Entry] = {}
        self._looked_at = clock.monotonic()

    def add(self, version: int, entry: bytes) -> None:
        """Remember an entry that was committed."""
        if not self._lake.place.is_local:
            self._entries[version] = _Entry(_digest(entry), self._clock.monotonic())

    def replaced(self) -> int | None:
        """Return a version whose entry is another one now; None if there is none, or no look is due.

        An entry is its own if its ETag is the digest of its bytes, as in most S3 buckets, or if its bytes are the same.
        Raise Unavailable if the lake does not answer; then look again at the next call.
        """
        now = self._clock.monotonic()
        if not self._entries or now - self._looked_at < LOOK_EVERY_S:
            return None
        listed = {found.key: found.etag for found in self._lake.list_after(DELTA_LOG, self._before_first())}
        for version, own in self._entries.items():
            if listed.get(entry_key(version)) != own.digest and self._is_another(version, own):
                return version
        self._looked_at = now
        self._entries = {
            version: own for version, own in self._entries.items() if now - own.committed_at < LOOK_EVERY_S
        }
        return None

    def _before_first(self) -> str:
        return entry_key(max(0, min(self._entries) - 1))

    def _is_another(self, version: int, own: _Entry) -> bool:
        found = self._lake.get(entry_key(version))
        return found is not None and _digest(found) != own.digest  # a missing one was cleaned up


def _digest(entry: bytes) -> str:
    return md5(entry, usedforsecurity=False).hexdigest()
