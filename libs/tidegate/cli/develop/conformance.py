"""`tidegate conformance`: run recorded scenarios against the operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from tidegate.cli.shared import DONE, FAILED, json_option, show
from tidegate.testing.conformance import Result, run_files

SHOWN = 3
"""Number of differences shown per operator and file."""


@click.command(name="conformance")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--operator", metavar="NAME", help="Run only the scenarios of this operator.")
@json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], operator: str | None) -> None:
    """Run recorded scenarios. The last line is `N passed, N failed`.

    A scenario of an unknown operator fails.

    Example: tidegate conformance --operator suppress suppress.jsonl.gz probes.jsonl.gz
    """
    results = run_files(files, operator)
    passed, failed = sum(result.passed for result in results), sum(result.failed for result in results)
    rows = [asdict(result) | {"failed": result.failed} for result in results]
    lines = [line for result in results for line in _lines(result)]
    show(
        {"passed": passed, "failed": failed, "results": rows}, "\n".join([*lines, f"{passed} passed, {failed} failed"])
    )
    ctx.exit(FAILED if failed else DONE)


def _lines(result: Result) -> Iterator[str]:
    yield f"{result.operator} {result.file}: {result.passed} passed, {result.failed} failed"
    yield from (f"  {difference}" for difference in result.differences[:SHOWN])
    if result.failed > SHOWN:
        yield f"  and {result.failed - SHOWN} more"
