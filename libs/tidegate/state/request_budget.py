"""Decide how long a driver waits before its next batch, so that its requests to an object store keep to a budget. Pure.

A budget earns evenly over the day, and what requests cost is taken from it. While more is spent than earned, the next
batch waits, but never for longer than LONGEST_DELAY_S: a budget that is too small makes batches rare, not endless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PUT_USD, GET_USD = 5e-6, 0.4e-6
"""List prices of a PUT or LIST, and of a GET or HEAD, in the usual regions of the three large stores."""

LONGEST_DELAY_S = 30.0
"""The longest wait for the budget before a batch, s."""

SAVED_AT_MOST_S = 600.0
"""What is not spent within this time is lost, so that a quiet night does not pay for a day without limit."""

DAY_S = 86_400.0

STANDING_USD = 0.09
"""What an operator costs a day without any batch: its lease every 10 s, and looks for requests and newer entries."""

READS_OF_BATCH = 4
"""GETs and HEADs of a batch, its share of compactions and clean-ups included."""


def batch_usd(puts: int) -> float:
    """Return what commits with so many PUTs have cost."""
    return puts * PUT_USD + READS_OF_BATCH * GET_USD


@dataclass(frozen=True)
class RequestBudget:
    """What a driver may spend: `usd_per_s` is earned, and `saved` was left at the time `at` (s); negative: owed."""

    usd_per_s: float
    saved: float = 0.0
    at: float = 0.0

    @classmethod
    def of_day(cls, usd: float, operators: int, now: float) -> RequestBudget:
        """Return the budget for the batches of one of so many operators that share `usd` a day."""
        return cls(max(usd / operators - STANDING_USD, 0.0) / DAY_S, 0.0, now)

    def spent(self, usd: float, now: float) -> RequestBudget:
        """Return the budget after these costs, of which no more is owed than the longest delay earns."""
        saved = self._saved_at(now) - usd
        return replace(self, saved=max(saved, -LONGEST_DELAY_S * self.usd_per_s), at=now)

    def delay_s(self, now: float) -> float:
        """Return how long the next batch has to wait: until nothing is owed, at most LONGEST_DELAY_S."""
        # rule: lake-budget
        if self.usd_per_s <= 0:
            return LONGEST_DELAY_S
        return min(max(-self._saved_at(now) / self.usd_per_s, 0.0), LONGEST_DELAY_S)

    def _saved_at(self, now: float) -> float:
        return min(self.saved + self.usd_per_s * max(now - self.at, 0.0), self.usd_per_s * SAVED_AT_MOST_S)
