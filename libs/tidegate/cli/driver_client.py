"""What touches a running operator's log is asked of its driver; without one the command does it itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from tidegate.runtime.batch_loop.requests import Kind, Requests
from tidegate.runtime.configuration.application import Application

DRIVER_TIMEOUT_S = 300.0
PAUSE_S = 0.1


def requests_of(application: Application, name: str) -> Requests:
    """What the operator's driver on this machine is asked by."""
    return Requests(application.state / application.application / name)


def carry_out(request: Kind, application: Application, name: str, content: str = "") -> str:
    """The operator's driver has done it, or this process as its driver; gives who it was.

    `content`: what the running driver is told with it. UserError when it refuses.
    """
    requests = requests_of(application, name)
    if requests.driven():
        requests.ask(request, DRIVER_TIMEOUT_S, content)
        return "the running driver"
    click.echo("starting Spark: no driver runs here", err=True)
    from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
    from tidegate.runtime.spark.session import start_spark

    spark = start_spark(f"tidegate {request}", application.spark.master, application.spark.conf)
    try:
        driver = OperatorDriver(Wiring(spark=spark, application=application, name=name))
        driver.start()
        work: Callable[[], bool | None] = {
            "apply": driver.apply,
            "compact": driver.compact,
            "flush": driver.flush,
        }[request]
        while work() is False:  # local states are on their way back
            time.sleep(PAUSE_S)
    finally:
        spark.stop()
    return "this command"
