"""A driver's observable state, which any thread can read at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tidegate.contracts.batch_metadata import BatchMeta, Ends
from tidegate.runtime.telemetry.driver_status import DriverStatus


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The state of a driver at one moment.

    `newest`: its newest commit; None before its first claim, when the fields derived from it are empty too.
    `loop_age_s`: seconds since its loop last began a round; None before the first. `ends`: the last stable
    offsets of the input topics when it last read them. `compaction_s`: the total duration of its compactions.
    """

    operator: str
    input: str
    status: DriverStatus
    loop_age_s: float | None = None
    newest: BatchMeta | None = None
    ends: Ends = field(default_factory=dict)
    files: int = 0
    state_rows: int = 0
    compactions: int = 0
    compaction_s: float = 0.0


class Observed(Protocol):
    """A driver that can be observed."""

    def observe(self) -> Observation:
        """Return the current state, without a lock or a request."""
        ...
