"""Requests to the running driver of an operator; if no driver is running, the command does the work itself.

Only the driver writes to the log of a running operator. Commands reach it through the lake, from any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.batch_loop.standby import DriverWatch
from tidegate.runtime.configuration.application import Application
from tidegate.state.driver_requests import Kind, Requester
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import DriverLease, Life
from tidegate.state.local.instance import ended_instance

DRIVER_TIMEOUT_S = 300.0
PAUSE_S = 0.1

takeover_option = click.option(
    "--takeover", is_flag=True, help="Do the work in this process, even if a driver is running: that driver is fenced."
)


class DriverLost(EngineError):
    """The lease that was found is of a driver that was not running any more."""


def watch_driver(application: Application, name: str) -> DriverWatch:
    """Return a watch of the operator's driver, wherever it runs."""
    ended = ended_instance(application.state / application.application / name)
    return DriverWatch(_lake(application, name), ended, application.takeover_after_ms, SYSTEM_CLOCK)


def refuse_while_driven(application: Application, name: str) -> None:
    """Raise UserError if a driver of the operator is running. If its lease is not renewed, this takes some seconds."""
    watch = watch_driver(application, name)
    if watch.until_known() is Life.ALIVE and watch.lease is not None:
        raise UserError(
            "a driver of the operator is running",
            value=f"{name}: {watch.lease.place}",
            remedy="stop the driver with `tidegate stop`, then try again",
        )


def ask_driver(request: Kind, application: Application, name: str, content: str = "") -> DriverLease | None:
    """Have the operator's driver carry out the request, and return its lease; None if no driver is running.

    Raise UserError if the driver refuses; EngineError if it ends or does not answer.
    """
    watch = watch_driver(application, name)
    if watch.look() in (Life.NONE, Life.GONE):
        return None
    lease = watch.lease
    if lease is None:  # it has claimed the operator a moment ago
        if watch.until_known() is not Life.ALIVE or watch.lease is None:
            return None
        lease = watch.lease

    def ended() -> str | None:
        life = watch.look()
        if life is Life.GONE and not watch.was_renewed:
            raise DriverLost("the driver has ended", value=lease.place)
        gone = {Life.NONE: "the driver has ended", Life.GONE: "the driver no longer renews its lease"}
        return f"{gone[life]}: {lease.place}" if life in gone else None

    try:
        Requester(_lake(application, name)).ask(request, lease.epoch, DRIVER_TIMEOUT_S, content, ended=ended)
    except DriverLost:
        return None
    return lease


def carry_out(request: Kind, application: Application, name: str, content: str = "", *, takeover: bool = False) -> str:
    """Have the operator's driver do it, or do it in this process if no driver is running. Return who did it, as text.

    `content` is sent to the running driver with the request. With `takeover` no driver is asked. Raise UserError if the
    driver refuses the request.
    """
    if not takeover and ask_driver(request, application, name, content) is not None:
        return "the running driver"
    click.echo("starting Spark: " + ("taking over" if takeover else "no driver is running"), err=True)
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


def _lake(application: Application, name: str) -> Lake:
    return open_lake(application.lake / name)
