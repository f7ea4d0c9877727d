"""`tidegate demo`: run the operators on a year of real data, and check their results with other code."""

from __future__ import annotations

import click

from tidegate.cli.shared import DONE, FAILED, json_option, show


@click.command("demo")
@json_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run a year of real departures and weather through a broker and the operators, and check every result.

    Exit code 1 if a result differs from what independent code expects.

    Example: tidegate demo
    """
    from tidegate.devkit.demo.run import demo

    right = demo()
    show({"right": right}, "")
    ctx.exit(DONE if right else FAILED)
