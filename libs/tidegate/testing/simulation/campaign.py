"""Campaigns of many seeds, and the shrinking and keeping of those that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tidegate.testing.simulation.play import Report, simulate
from tidegate.testing.simulation.settings import Settings

_RUNS_A_TURN = 20


@dataclass
class Campaign:
    """The totals of many runs: number of runs, failed runs, and how often each fault and each event occurred."""

    runs: int = 0
    failed: list[Report] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Add the report of one run to the totals."""
        self.runs += 1
        self.counts += report.counts
        self.events += report.events
        if report.problem is not None:
            self.failed.append(report)


def play_all(
    runs: Iterable[Settings], processes: int, progress: Callable[[Campaign], None] = lambda _: None
) -> Campaign:
    """Play all runs on that many processes and return the totals. `progress` is called after each run."""
    campaign = Campaign()
    if processes < 2:
        for settings in runs:
            campaign.add(simulate(settings))
            progress(campaign)
        return campaign
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for report in pool.map(simulate, runs, chunksize=_RUNS_A_TURN):
            campaign.add(report)
            progress(campaign)
    return campaign


def shrunk(failing: Settings) -> Report:
    """Return the smallest run found that still fails."""
    smallest = simulate(failing)
    while smaller := next((r for s in smallest.settings.smaller() if (r := simulate(s)).problem is not None), None):
        smallest = smaller
    return smallest


def keep(report: Report, folder: Path) -> Path:
    """Write the run's settings to a regression file, which a test plays again, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{report.settings.seed}.json"
    path.write_text(report.settings.to_json())
    return path
