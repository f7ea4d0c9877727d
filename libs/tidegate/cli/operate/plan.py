"""`tidegate plan`: preview what a changed configuration file would do to its operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.application.target import load
from tidegate.cli.shared import json_option, note, wants_json
from tidegate.runtime.configuration.application import Application, select_operators
from tidegate.runtime.configuration.changes import REMEDY
from tidegate.runtime.configuration.written import written
from tidegate.runtime.doctor.change_preview import ChangePreview, Forecast, checked_preview

REFUSED = 1

_STATUS_TEXT = {
    "new": "new: it starts with the next `tidegate run`",
    "same": "no change",
    "live": "can change while running; its state is kept",
    "refused": "refused",
    "unknown": "its previous configuration is unknown: run it once with the old file, then plan again",
}


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", help="Only this operator.")
@json_option
def command(file: Path, operator: str | None) -> None:
    """Show what FILE would change and how many held records would be released. Dry run: nothing is changed; see
    `apply`.

    Exit code 1 if a change is refused.

    Example: tidegate plan flights.yaml
    """
    previews = previews_of(load(file), operator)
    show_previews(previews)
    if any(found.status == "refused" for found in previews):
        raise click.exceptions.Exit(REFUSED)


def previews_of(application: Application, operator: str | None) -> list[ChangePreview]:
    """Return the previewed changes of the named operator, or of all operators if `operator` is None."""
    found = []
    for name in select_operators(application, operator):
        note(f"{name}: reading its log")
        found.append(checked_preview(application, name))
    return found


def show_previews(previews: Sequence[ChangePreview]) -> None:
    """Print each operator's status, changes, forecast and warnings; with `--json`, one JSON line per operator."""
    for found in previews:
        if wants_json():
            click.echo(_as_json(found))
            continue
        click.echo(f"{found.name}: {_STATUS_TEXT[found.status]}")
        if found.changes:
            Console().print(_table(found))
        if found.status == "live":
            click.echo("  " + forecast_text(found.forecast))
            for step, forecast in found.steps.items():
                click.echo(f"  {step}: {forecast_text(forecast)}")
        if any(change.refused for change in found.changes):
            click.echo(f"  {REMEDY}")
        for warning in found.warnings:
            click.echo(f"  {'reason' if found.status == 'refused' else 'warning'}: {warning}")


def forecast_text(forecast: Forecast) -> str:
    """Return one line with the number of records held now, released, dropped without a result, and held afterwards."""
    lost = f", {forecast.lost:,} lost without a result" if forecast.lost else ""
    return f"{forecast.held:,} held, {forecast.released:,} released{lost}, {forecast.held_after:,} held after"


def _as_json(found: ChangePreview) -> str:
    return json.dumps({"operator": found.name, "status": found.status, **_details(found)})


def _details(found: ChangePreview) -> dict[str, Any]:
    return {
        "changes": [asdict(change) for change in found.changes],
        "numbers": asdict(found.forecast),
        **({"steps": {name: asdict(each) for name, each in found.steps.items()}} if found.steps else {}),
        "warnings": list(found.warnings),
    }


def _table(found: ChangePreview) -> Table:
    table = Table(box=None)
    for title in ("option", "was", "is", ""):
        table.add_column(title)
    for change in found.changes:
        table.add_row(change.option, _shown(change.before), _shown(change.after), change.refused or change.note or "")
    return table


def _shown(value: Any) -> str:
    return "(left out)" if value is None else written(value)
