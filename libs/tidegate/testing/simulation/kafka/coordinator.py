"""The transaction coordinator: which producer epoch may write under a transactional id, and its open transaction.

Both versions of the protocol are covered. In version 2 every end raises the epoch, and written partitions join the
transaction implicitly. In version 1 the epoch stays, and partitions and groups are added explicitly. An end is prepared
at once; its partitions become visible afterwards, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NONE, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, CONCURRENT, FENCED = 0, 47, 48, 49, 51, 90
NO_EPOCH = -1

Part = tuple[str, str, int]
"""("output", topic, partition) or ("offsets", group, -1)."""
Offsets = dict[tuple[str, str, int], tuple[int, str]]
"""(group, topic, partition) to (offset, metadata)."""


@dataclass
class Transactional:
    """The state of one transactional id."""

    producer: int
    timeout_s: float
    epoch: int = 0
    former_epoch: int = NO_EPOCH
    state: Literal["idle", "ongoing", "ending"] = "idle"
    outcome: bool | None = None
    started_s: float = 0.0
    parts: list[Part] = field(default_factory=list)
    offsets: Offsets = field(default_factory=dict)

    def begin(self, now_s: float) -> None:
        """Open a transaction if none is open."""
        if self.state == "idle":
            self.state, self.outcome, self.started_s = "ongoing", None, now_s

    def join(self, part: Part) -> None:
        """Add the part to the transaction."""
        if part not in self.parts:
            self.parts.append(part)

    def prepare(self, *, commit: bool) -> None:
        """Decide how the transaction ends."""
        self.state, self.outcome = "ending", commit

    def bump(self, *, former: int) -> None:
        """Raise the epoch; `former` is the earlier epoch with which a producer may still request the new one."""
        self.epoch, self.former_epoch = self.epoch + 1, former


class Coordinator:
    """All transactional ids of a cluster."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.ids: dict[str, Transactional] = {}
        self._given = 0

    def initialise(self, name: str, producer: int, epoch: int, timeout_s: float) -> tuple[int, int, int]:
        """Return (code, producer id, epoch). If a transaction is open, abort it and return the code for a retry."""
        known = self.ids.get(name)
        if known is None:
            known = self.ids[name] = Transactional(producer=1_000 + self._given, timeout_s=timeout_s)
            self._given += 1
            return NONE, known.producer, known.epoch
        if producer >= 0 and producer != known.producer:
            return FENCED, -1, -1
        if known.state == "ending":
            return CONCURRENT, -1, -1
        if known.state == "ongoing":  # whoever asks: a broker checks the epoch only if no transaction is open
            self._abort(known, former=NO_EPOCH if producer < 0 or epoch != known.epoch else epoch)
            return CONCURRENT, -1, -1
        return self._next_epoch(known, epoch if producer >= 0 else None)

    def _next_epoch(self, known: Transactional, expected: int | None) -> tuple[int, int, int]:
        if expected is not None and expected == known.former_epoch != known.epoch:
            known.bump(former=expected)
        elif expected is None or expected == known.epoch:
            known.bump(former=NO_EPOCH if expected is None else expected)
        else:
            return FENCED, -1, -1
        known.outcome = None
        return NONE, known.producer, known.epoch

    def _abort(self, known: Transactional, *, former: int) -> None:
        known.bump(former=former)
        known.prepare(commit=False)

    def join(self, name: str, producer: int, epoch: int, part: Part, now_s: float, *, announce: bool) -> int:
        """Add the part to the id's open transaction and return the code.

        A transaction is opened by an explicit addition and, in version 2, by any write.
        """
        known = self.ids.get(name)
        if known is None or known.producer != producer:
            return INVALID_MAPPING
        if known.epoch != epoch:
            return INVALID_EPOCH
        if known.state == "ending":
            return CONCURRENT
        if not announce and self.version == 1:
            return NONE if known.state == "ongoing" and part in known.parts else INVALID_STATE
        known.begin(now_s)
        known.join(part)
        return NONE

    def end(self, name: str, producer: int, epoch: int, *, commit: bool) -> tuple[int, int, int]:
        """End the transaction and return (code, producer id, epoch to use from now on)."""
        known = self.ids.get(name)
        if known is None or known.producer != producer:
            return INVALID_MAPPING, -1, -1
        again = known.outcome is commit and epoch == (known.former_epoch if self.version == 2 else known.epoch)
        if again:  # a retry of the same end
            return (CONCURRENT if known.state == "ending" else NONE), known.producer, known.epoch
        if epoch != known.epoch:
            return (FENCED if epoch < known.epoch else INVALID_EPOCH), -1, -1
        if known.state != "ongoing":
            return (CONCURRENT if known.state == "ending" else INVALID_STATE), -1, -1
        if self.version == 2:
            known.bump(former=epoch)
        known.prepare(commit=commit)
        return NONE, known.producer, known.epoch

    def forget(self, name: str) -> None:
        """Forget the id if it is idle; its transactions have been committed or aborted already."""
        if name in self.ids and self.ids[name].state == "idle":
            del self.ids[name]

    def time_out(self, now_s: float) -> int:
        """Abort transactions that exceed their timeout and return their number."""
        late = [
            known
            for known in self.ids.values()
            if known.state == "ongoing" and now_s - known.started_s > known.timeout_s
        ]
        for known in late:
            self._abort(known, former=known.epoch)
        return len(late)
