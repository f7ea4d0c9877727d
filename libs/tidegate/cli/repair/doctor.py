"""`tidegate doctor`: diagnose problems around an application and suggest fixes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.shared import DONE, FAILED, json_option, note, show, wants_json
from tidegate.runtime.doctor.diagnosis import diagnose
from tidegate.runtime.doctor.findings import Finding


@click.command("doctor")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def command(context: click.Context, file: Path) -> None:
    """Check FILE's broker, topics, lake, local states and drivers, and this machine, and suggest a fix for each
    problem.

    Nothing is changed; services may keep running. Exit code 1 if a problem was found.

    \b
    Example:
      tidegate doctor flights.yaml
    """
    application = load(file)
    found = diagnose(application, lambda what: None if wants_json() else note(f"checking {what}"))
    text = "\n".join(map(_lines, found)) or "no problems found"
    show({"healthy": not found, "findings": [asdict(finding) for finding in found]}, text)
    context.exit(FAILED if found else DONE)


def _lines(finding: Finding) -> str:
    value = f"\n  value:  {finding.value}" if finding.value else ""
    return f"{finding.about}: {finding.problem}{value}\n  remedy: {finding.remedy}"
