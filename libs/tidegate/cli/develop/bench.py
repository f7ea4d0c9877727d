"""`tidegate bench`: run a benchmark of the source checkout."""

from __future__ import annotations

import subprocess
import sys

import click

from tidegate.contracts.errors import UserError
from tidegate.runtime.install.paths import project_root


@click.command("bench")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, name: str, as_json: bool) -> None:
    """Run benchmark NAME, or `all`. Exit code 1 if a limit is exceeded.

    Example: tidegate bench latency
    """
    if not (project_root() / "benchmarks").is_dir():
        raise UserError(
            "the benchmarks are not installed",
            value=project_root(),
            remedy="run `tidegate bench` from a source checkout of Tidegate",
        )
    arguments = [sys.executable, "-m", "benchmarks", name, *(["--json"] if as_json else [])]
    ctx.exit(subprocess.run(arguments, cwd=project_root(), check=False).returncode)
