"""Requests to the running driver of an operator; if no driver is running, the command does the work itself.

Only the driver writes to the log of a running operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from tidegate.runtime.batch_loop.requests import Kind, Requests
from tidegate.runtime.configuration.application import Application

DRIVER_TIMEOUT_S = 300.0
PAUSE_S = 0.1


def requests_of(application: Application, name: str) -> Requests:
    """Return the request files of the operator's driver on this machine."""
    return Requests(application.state / application.application / name)


def carry_out(request: Kind, application: Application, name: str, content: str = "") -> str:
    """Have the operator's driver do it, or do it in this process if no driver is running. Return who did it, as text.

    `content` is sent to the running driver with the request. Raise UserError if the driver refuses the request.
    """
    requests = requests_of(application, name)
    if requests.is_driver_running():
        requests.ask(request, DRIVER_TIMEOUT_S, content)
        return "the running driver"
    click.echo("starting Spark: no driver is running on this machine", err=True)
    from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
    from tidegate.runtime.service import session

    with session(application) as spark:
        operator = OperatorDriver(Wiring(spark=spark, application=application, name=name)).start()
        work: Callable[[], bool | None] = {
            "apply": operator.apply,
            "compact": operator.compact,
            "flush": operator.flush,
        }[request]
        while work() is False:  # local states are still being restored
            time.sleep(PAUSE_S)
    return "this command"
