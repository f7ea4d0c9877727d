"""`tidegate sql`: run Spark SQL over the views of every operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tidegate.application.display import as_text
from tidegate.application.target import load
from tidegate.cli.reports.rows import print_rows


@click.command("sql")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("--version", type=int, help="Show the logs as of this Delta version.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
def command(file: Path, query: str, version: int | None, as_json: bool) -> None:
    """Run QUERY in Spark SQL with the views of every operator of FILE registered.

    Example: tidegate sql flights.yaml "SELECT cause, count(*) FROM carrier_updates_emissions GROUP BY cause"
    """
    application = load(file)
    click.echo("starting Spark", err=True)
    from tidegate.runtime.spark.session import open_session
    from tidegate.spark import query as rows_of

    with open_session("tidegate sql", "local[*]", application.lake) as spark:
        show(rows_of(spark, application, query, version), as_json)


def show(rows: Any, as_json: bool) -> None:
    """Print the rows of an Arrow table, or one JSON object a line; bytes are decoded as text where possible."""
    if as_json:
        for row in rows.to_pylist():
            click.echo(json.dumps(row, default=as_text))
        return
    print_rows(rows.column_names, [list(row.values()) for row in rows.to_pylist()])
