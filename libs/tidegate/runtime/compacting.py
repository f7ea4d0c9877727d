"""A compaction that is worked out beside the batches. May import: contracts, state, runtime.

Batches only add files, so what it has read stays as it was; between two of them it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.lanes import beside
from tidegate.runtime.ledger import after_compaction
from tidegate.state.compaction import Rewrite, Rewritten, rewrite
from tidegate.state.data_files import delete_attempt

OneByOne = Callable[[Any, Sequence[Rewrite]], list[Rewritten]]


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """The parts of a compaction, planned at a batch, and what becomes of them."""

    parts: tuple[Rewrite, ...]
    planned: BatchMeta
    answer: Future[list[Rewritten]]

    @classmethod
    def begin(cls, planned: BatchMeta, parts: Sequence[Rewrite], run: OneByOne) -> Rewriting:
        """The parts are being rewritten; `planned` is the metadata that the compaction would have had at once."""
        return cls(parts=tuple(parts), planned=planned, answer=beside(lambda: run(rewrite, parts)))

    def meta(self, newest: BatchMeta, clock: int) -> BatchMeta:
        """The metadata of the commit, which comes after `newest`."""
        through, attempt = self.planned.batch - 1, self.planned.attempt
        partitions = [part.partition for part in self.parts if part.snapshot]
        return after_compaction(newest, partitions, attempt=attempt, clock=clock, through=through)

    def drop(self) -> None:
        """It has come to its end, and nothing is left of it."""
        self.answer.exception()
        for part in self.parts[:1]:
            delete_attempt(part.log, part.batch, part.attempt)
