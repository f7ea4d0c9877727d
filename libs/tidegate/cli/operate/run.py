"""`tidegate run`: run operators in the foreground."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.event_time import format_duration_ms
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.service import PLAIN, configure_logging, run
from tidegate.runtime.telemetry.batch_metrics import Metrics
from tidegate.runtime.telemetry.log_lines import log_fields, set_log_format
from tidegate.state.lease_decisions import Succession

lines = logging.getLogger("tidegate")


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", "name", help="Run only this operator.")
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Exit after processing the records present at startup; a join also waits until its table has done so.",
)
@click.option(
    "--standby",
    "succession",
    flag_value="stand by",
    help="If another driver runs, wait and take over when it is gone; if this one is fenced, stand by again.",
)
@click.option("--takeover", "succession", flag_value="take over", help="If another driver runs, fence it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per batch.")
@click.option("--verbose", is_flag=True, help="Print a line per batch with the duration of its phases.")
def command(
    file: Path, name: str | None, until_caught_up: bool, succession: str | None, as_json: bool, verbose: bool
) -> None:
    """Run all operators of FILE, or one, in the foreground. SIGTERM and Ctrl-C finish the current batch, then exit.

    If another driver runs an operator, on whichever machine, this is an error, unless --standby or --takeover is given.

    Example: tidegate run flights.yaml --operator carrier_updates --until-caught-up
    """
    configure_logging(PLAIN)
    application = load(file)
    set_log_format(application, PLAIN)
    names = select_operators(application, name)
    progress = Progress(as_json, verbose, logged=application.log == "json")
    progress.say(
        f"starting {', '.join(names)}: starting Spark, claiming operators, publishing what is still unpublished"
    )
    run(
        application,
        names,
        until_caught_up=until_caught_up,
        listener=progress.batch,
        ready=lambda ready: progress.say(f"{ready}: ready", ready),
        succession=Succession(succession or "refuse"),
    )
    progress.end()


class Progress:
    """Progress output of running operators: about one line per second for people, or one JSON line per batch."""

    def __init__(self, as_json: bool, verbose: bool, *, logged: bool = False) -> None:
        self._as_json, self._verbose, self._logged = as_json, verbose, logged
        self._metrics: dict[str, Metrics] = {}
        self._said = 0

    def say(self, line: str, operator: str = "", batch: int | None = None) -> None:
        """Write the line to stderr, or to the log if logging is JSON; stdout is for results."""
        if self._logged:
            lines.info(line, extra=log_fields(operator, batch=batch) if operator else None)
        else:
            click.echo(line, err=True)

    def batch(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """Count the batch, and print a line if one is due."""
        metrics = self._metrics.setdefault(meta.operator, Metrics())
        metrics.add(meta)
        if self._as_json:
            figures = {"operator": meta.operator, "batch": meta.batch, "seconds": seconds, **metrics.report()}
            click.echo(json.dumps(figures))
        elif self._verbose or meta.clock - self._said >= 1_000:
            self._said = meta.clock
            self.say(self._line(meta, seconds, metrics), meta.operator, meta.batch)

    def end(self) -> None:
        """Print the totals of each operator."""
        for operator, metrics in self._metrics.items():
            total = metrics.report()
            self.say(
                f"{operator}: {total['records_in']:,} records in, {total['emitted']:,} emitted, "
                f"{total['held']:,} held, {total['late']:,} late, {total['rejected']:,} rejected",
                operator,
            )

    def _line(self, meta: BatchMeta, seconds: dict[str, float], metrics: Metrics) -> str:
        total = metrics.report()
        line = f"{meta.operator}: batch {meta.batch}, {total['records_in']:,} records in, {total['held']:,} held"
        if self._verbose:
            line += "  " + ", ".join(f"{part} {format_duration_ms(int(s * 1000))}" for part, s in seconds.items())
        return line
