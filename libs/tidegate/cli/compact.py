"""`tidegate compact`: a snapshot of each partition's state, and small files merged.

May import: click, services, runtime.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from services.service import chosen
from tidegate.runtime.application import Application, load
from tidegate.runtime.requests import Requests

DRIVER_TIMEOUT_S = 300.0


@click.command("compact")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", "name", help="Compact this operator alone.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(file: Path, name: str | None, as_json: bool) -> None:
    """Compact the logs of FILE's operators: a running driver is asked, otherwise it is done here.

    Example: tidegate compact flights.yaml --operator carrier_updates
    """
    application = load(file)
    for operator in chosen(application, name):
        done_by = _compact(application, operator)
        line = {"operator": operator, "compacted_by": done_by}
        click.echo(json.dumps(line) if as_json else f"{operator}: compacted by {done_by}")


def _compact(application: Application, name: str) -> str:
    requests = Requests(application.state / application.application / name)
    if requests.driven():
        requests.ask("compact", DRIVER_TIMEOUT_S)
        return "the running driver"
    click.echo("starting Spark: no driver runs here", err=True)
    from tidegate.runtime.driver import OperatorDriver, Wiring
    from tidegate.runtime.spark.session import start_session

    spark = start_session("tidegate compact", application.spark.master, application.spark.conf)
    try:
        driver = OperatorDriver(Wiring(spark=spark, application=application, name=name))
        driver.start()
        driver.compact()
    finally:
        spark.stop()
    return "this command"
