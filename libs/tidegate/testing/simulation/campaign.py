"""Many seeds, and what to do with one that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tidegate.testing.simulation.play import Report, simulate
from tidegate.testing.simulation.settings import Settings

_SEEDS_A_TURN = 20


@dataclass
class Campaign:
    """What came of many runs: how many, what was wrong, and how often what happened."""

    runs: int = 0
    failed: list[Report] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """The run is counted."""
        self.runs += 1
        self.counts += report.counts
        self.seen += report.seen
        if report.problem is not None:
            self.failed.append(report)


def play_all(seeds: Iterable[int], processes: int, progress: Callable[[Campaign], None] = lambda _: None) -> Campaign:
    """The runs of all seeds, on so many processes; `progress` is called now and then."""
    campaign, listed = Campaign(), list(seeds)
    if processes < 2:
        for seed in listed:
            campaign.add(_play(seed))
            progress(campaign)
        return campaign
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for report in pool.map(_play, listed, chunksize=_SEEDS_A_TURN):
            campaign.add(report)
            progress(campaign)
    return campaign


def _play(seed: int) -> Report:
    return simulate(Settings.drawn(seed))


def shrunk(failing: Settings) -> Report:
    """The smallest run found that still fails."""
    smallest = simulate(failing)
    while smaller := next((r for s in smallest.settings.smaller() if (r := simulate(s)).problem is not None), None):
        smallest = smaller
    return smallest


def keep(report: Report, folder: Path) -> Path:
    """The run is a regression file, which a test plays again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{report.settings.seed}.json"
    path.write_text(report.settings.to_json())
    return path
