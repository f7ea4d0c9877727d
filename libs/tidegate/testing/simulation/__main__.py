"""`python -m tidegate.testing.simulation`: play seeds, report what happened, and keep failing runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click

from tidegate.testing.simulation.campaign import Campaign, keep, play_all, shrunk
from tidegate.testing.simulation.play import simulate
from tidegate.testing.simulation.settings import Settings

REGRESSIONS = Path("tests/simulation/regressions")
_MOST_SHRUNK = 3


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many.")
@click.option("--start", default=0, show_default=True, help="The first one.")
@click.option("--processes", default=2, show_default=True)
@click.option("--seed", type=int, help="Play this one alone, and print its story.")
@click.option(
    "--replay", type=click.Path(exists=True, path_type=Path), help="Play a regression file, and print its story."
)
def command(seeds: int, start: int, processes: int, seed: int | None, replay: Path | None) -> None:
    """Play seeds. Exit code 1 if one fails.

    The first failing runs are shrunk and kept in tests/simulation/regressions.
    """
    if seed is not None or replay is not None:
        sys.exit(_play_one(Settings.from_json(replay.read_text()) if replay else Settings.drawn(seed or 0)))
    began, progress = time.perf_counter(), _Progress(seeds)
    campaign = play_all(map(Settings.drawn, range(start, start + seeds)), processes, progress.show)
    click.echo(_table("faults", campaign.counts) + _table("events", campaign.events))
    for report in campaign.failed[:_MOST_SHRUNK]:
        click.echo(f"kept: {keep(shrunk(report.settings), REGRESSIONS)}")
    minutes = (time.perf_counter() - began) / 60
    failed = [report.settings.seed for report in campaign.failed]
    passed, pace = campaign.runs - len(failed), campaign.runs / minutes
    click.echo(f"{passed} passed, {len(failed)} failed {failed or ''} ({pace:.0f} a minute)")
    sys.exit(1 if failed else 0)


class _Progress:
    """Progress output: one line every ten seconds, and one for each failure."""

    def __init__(self, seeds: int) -> None:
        self._seeds, self._shown_at, self._failed = seeds, time.perf_counter(), 0

    def show(self, campaign: Campaign) -> None:
        """Print new failures, and the progress line if it is due."""
        for report in campaign.failed[self._failed :]:
            click.echo(f"seed {report.settings.seed}: {str(report.problem)[-600:]}", err=True)
        self._failed = len(campaign.failed)
        if time.perf_counter() - self._shown_at > 10:
            self._shown_at = time.perf_counter()
            click.echo(f"{campaign.runs} of {self._seeds}, {self._failed} failed", err=True)


def _play_one(settings: Settings) -> int:
    report = simulate(replace(settings, verbose=True))
    click.echo("\n".join(report.story) + _table("faults", report.counts))
    click.echo(report.problem or "passed")
    return 1 if report.problem else 0


def _table(title: str, counts: Counter[str]) -> str:
    return f"\n{title}:\n" + "\n".join(f"  {count:9,}  {what}" for what, count in sorted(counts.items()))


if __name__ == "__main__":
    command()
