"""`tidegate kafka`: start and stop the embedded broker."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.shared import json_option, note, show
from tidegate.devkit.embedded_broker import DEFAULT_PORT, Broker
from tidegate.runtime.install.paths import home, jars

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: home() / "kafka",
    show_default=".tidegate/kafka in the project",
    help="Data folder of the broker.",
)


@click.group()
def command() -> None:
    """Start and stop the embedded Kafka broker: a real, single broker for development on this machine."""


@command.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Port to listen on, on 127.0.0.1.  [default: {DEFAULT_PORT}]"
)
@data_option
@json_option
def start(port: int | None, data: Path) -> None:
    """Start a broker that keeps running in the background until it is stopped.

    Does nothing if it is running already.

    \b
    Example:
      tidegate kafka start --port 9092
    """
    broker = Broker.running(data)
    if broker is None or port not in (None, broker.port):
        note("Starting a Kafka broker (about 5 s) ...")
        broker = Broker.start(data, jars("broker"), port=port or DEFAULT_PORT)
    _show(data, broker)


@command.command()
@data_option
@json_option
def status(data: Path) -> None:
    """Show whether a broker is running on the data folder, and at which address.

    \b
    Example:
      tidegate kafka status --json
    """
    _show(data, Broker.running(data))


@command.command()
@data_option
@json_option
def stop(data: Path) -> None:
    """Stop the broker of the data folder. Its topics are kept for the next start.

    \b
    Example:
      tidegate kafka stop
    """
    broker = Broker.running(data)
    if broker is None:
        _show(data, None)
        return
    broker.stop()
    show({"running": False, "data": str(data.resolve())}, f"Stopped the broker on {data}")


def _show(data: Path, broker: Broker | None) -> None:
    result = {"running": broker is not None, "data": str(data.resolve())}
    if broker is None:
        show(result, f"No broker is running on {data}")
        return
    show(
        result | {"bootstrap": broker.bootstrap, "pid": broker.pid},
        f"A broker is running at {broker.bootstrap} (process {broker.pid}, data in {data})",
    )
