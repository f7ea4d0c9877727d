"""The metadata of an operator's batches, kept from request to request: a committed batch never changes."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from tidegate.contracts.batch_metadata import BatchMeta, after_document
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import metas_of
from tidegate.state.upkeep.batch_history import documents

MOST_KEPT = 2_000
"""Most batches of an operator that are kept from one request to the next."""


class KnownBatches:
    """Successive batches of one operator, so that requests only read from its log what is not known yet."""

    def __init__(self) -> None:
        self._known: Sequence[BatchMeta] = ()
        self._lock = Lock()

    def newest_of(self, log: LogVersion, most: int) -> list[BatchMeta]:
        """Return the metadata of the newest batches at the handle's version, oldest first. They are at most `most`."""
        newest = log.newest()
        assert newest is not None, "a log that is read begins with a claim"
        batches = range(max(0, newest.batch - most + 1), newest.batch + 1)
        with self._lock:
            found = self._extended(log, batches)
            asked = [meta for meta in found if meta.batch in batches]
            self._known = found if len(found) <= MOST_KEPT else asked
            return asked

    def _extended(self, log: LogVersion, batches: range) -> list[BatchMeta]:
        """Return the known batches and those that are asked for; only the latter if others are between them."""
        known = self._known
        if not _is_gapless(known) or known[-1].batch < batches.start or known[0].batch >= batches.stop:
            return metas_of(log, batches)
        newer = _newer(log, known, batches.stop)
        if newer is None:
            return metas_of(log, batches)
        return [*metas_of(log, range(batches.start, known[0].batch)), *known, *newer]


def _is_gapless(known: Sequence[BatchMeta]) -> bool:
    """Return whether there are batches, and none is missing between them, as where retention has dropped some."""
    return len(known) > 0 and known[-1].batch - known[0].batch + 1 == len(known)


def _newer(log: LogVersion, known: Sequence[BatchMeta], stop: int) -> list[BatchMeta] | None:
    """Return the batches after the known ones and before `stop`; None if the log has others in place of the known ones.

    That is so after entries were moved away, as the remedies for a damaged log say.
    """
    last = known[min(stop - 1, known[-1].batch) - known[0].batch]
    same, *newer = documents(log, range(last.batch, stop)) or [{}]
    if same.get("attempt") != last.attempt:
        return None
    found = [last]
    for document in newer:
        found.append(after_document(found[-1], document))
    return found[1:]
