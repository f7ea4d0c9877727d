"""What can be seen of a driver from another thread, at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.telemetry.driver_status import Condition


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A driver as it stands. `newest`: its newest commit; None before its first claim, as is all that follows from it.

    `idle_s`: since its loop last turned; None: it never did. `ends`: where the partitions of the input ended when it
    last looked. `compaction_s`: what its compactions took together.
    """

    operator: str
    input: str
    condition: Condition
    idle_s: float | None = None
    newest: BatchMeta | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    files: int = 0
    state_rows: int = 0
    compactions: int = 0
    compaction_s: float = 0.0


class Observed(Protocol):
    """A driver that lets itself be seen."""

    def observe(self) -> Observation:
        """How it stands now; takes no lock and asks nobody."""
        ...
