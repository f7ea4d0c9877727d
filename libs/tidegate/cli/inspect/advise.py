"""`tidegate advise`: show which share of the records each grace would have served, from the lateness in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.application.target import load
from tidegate.cli.reports.graces import (
    SHARES,
    GraceEffect,
    Lateness,
    grace_effects,
    lateness_of,
    rounded_duration,
    smallest,
)
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import format_duration_ms
from tidegate.devkit.charts import Bar, bar_chart
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.configuration.named_steps import step_named
from tidegate.runtime.telemetry.batch_metrics import Metrics, by_step
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake

_BAR_WIDTH = 30


@click.command("advise")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@click.option("--plot", type=click.Path(path_type=Path), metavar="SVG", help="Draw the shares into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with durations in ms.")
def command(file: Path, operator: str, plot: Path | None, as_json: bool) -> None:
    """Show for different graces which share of OPERATOR's records would have been in time, and the added delay.

    Lateness is counted over all records since the log began, late or not. A record waits until stream time reaches its
    timestamp plus the grace: the whole grace if it arrives with lateness 0, less if it arrives later. Of a pipeline,
    name the step as well: OPERATOR.STEP.

    Example: tidegate advise flights.yaml flights_with_weather --plot graces.svg
    """
    application = load(file)
    name, step, rules = step_named(application, operator, lambda rules: True, "no steps")
    lateness = _lateness(application, name, step)
    now = _grace(rules)
    found = grace_effects(lateness, now)
    if plot:
        plot.write_text(bar_chart(*_headings(operator, lateness), [_bar(each, now) for each in found]))
    if as_json:
        click.echo(json.dumps(_as_json(operator, lateness, found, now)))
        return
    _show(operator, lateness, found, now, _retention(application, rules))


def _lateness(application: Application, operator: str, step: str) -> Lateness:
    """Return the lateness of what has reached a step of the operator; "": of an operator that is no pipeline."""
    log = open_lake(application.lake / operator)
    if not has_version(log, None):
        raise UserError(
            "the operator has no log yet", value=log.place, remedy=f"run it: tidegate run FILE --operator {operator}"
        )
    newest = LogVersion.at(log, None).newest()
    measures = {} if newest is None else by_step(Metrics.after(newest).report())
    lateness = lateness_of(measures.get(step, {}))
    if lateness.records == 0:
        raise UserError(
            "the log has no lateness counts yet",
            value=f"{lateness.without_bin} records were read before lateness was counted",
            remedy="run the operator until it has read some records",
        )
    return lateness


def _grace(config: OperatorRules) -> int | None:
    """Return the configured grace or `max_lateness` in ms; None if neither is configured."""
    places = (config, "grace"), (config, "max_lateness"), (getattr(config, "window", None), "grace")
    configured = (getattr(place, name, None) for place, name in places)
    return next((grace for grace in configured if grace is not None), None)


def _retention(application: Application, config: OperatorRules) -> int | None:
    """Return the limit for a grace: the shortest history retention of the tables that are read, in ms; None without."""
    tables = [application.operators[read.table].as_table() for read in config.reads()]
    return min((t.history_retention for t in tables if t and t.history_retention is not None), default=None)


def _headings(operator: str, lateness: Lateness) -> tuple[str, str]:
    title = f"{operator}: share of records in time, by grace"
    return (
        title,
        f"of {lateness.records:,} records; the largest lateness is {rounded_duration(lateness.largest)}",
    )


def _bar(each: GraceEffect, now: int | None) -> Bar:
    return Bar(
        _named(each, now), each.share, f"{_percent(each.share)}, delay {rounded_duration(each.delay)} on average"
    )


def _named(each: GraceEffect, now: int | None) -> str:
    return format_duration_ms(each.grace) + (" (now)" if each.grace == now else "")


def _percent(share: float) -> str:
    """Return the share as a percentage, never rounded up to 100 %."""
    return "100 %" if share == 1 else f"{int(share * 100_000) / 1_000:.3f} %"


def _as_json(operator: str, lateness: Lateness, found: list[GraceEffect], now: int | None) -> dict[str, Any]:
    return {
        "operator": operator,
        "records": lateness.records,
        "records_before_bins": lateness.without_bin,
        "lateness_max": lateness.largest,
        "grace_now": now,
        "graces": [each._asdict() for each in found],
    }


def _show(operator: str, lateness: Lateness, found: list[GraceEffect], now: int | None, retention: int | None) -> None:
    title, subtitle = _headings(operator, lateness)
    table = Table(title=f"{title}, {subtitle}", title_justify="left", box=None, pad_edge=False)
    for column, justify in (("grace", "right"), ("served", "left"), ("", "right"), ("missed", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("average delay", justify="right")
    for each in found:
        missed = f"{lateness.records - each.served:,}"
        bar = "█" * int(each.share * _BAR_WIDTH)
        table.add_row(
            _named(each, now), bar.ljust(_BAR_WIDTH, "·"), _percent(each.share), missed, rounded_duration(each.delay)
        )
    console = Console()
    console.print(table)
    for line in _lines(lateness, found, retention):
        console.print(line, highlight=False, soft_wrap=True)


def _lines(lateness: Lateness, found: list[GraceEffect], retention: int | None) -> list[str]:
    """Return the summary below the table."""
    needed = [(share, smallest(found, share)) for share in SHARES]
    configured = [
        f"{share * 100:.4g} % need a grace of {format_duration_ms(each.grace)}" for share, each in needed if each
    ]
    lines = [f"Of these records, {', '.join(configured)}. Shares are lower bounds; delays are in stream time."]
    if retention is not None:
        lines.append(f"A grace must stay below the table's history_retention, {format_duration_ms(retention)}.")
    if lateness.without_bin:
        lines.append(f"{lateness.without_bin:,} older records are not included: their lateness was not counted.")
    return lines
