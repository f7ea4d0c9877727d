"""`tidegate console`: show what an application does, in a browser."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.shared import json_option, wants_json
from tidegate.contracts.errors import UserError

DEFAULT_PORT = 8765


@click.command("console")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, help="Listen port.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Listen address; by default for this machine alone."
)
@click.option("--token", help="Token for all logins, at least 20 characters; default: a new one for each login.")
@json_option
def command(file: Path, port: int, host: str, token: str | None) -> None:
    """Serve pages that show what FILE's operators do, hold and have emitted, now or as of an earlier batch.

    Print an address that opens one login. The console reads logs in the lake, local states, and the broker if it
    answers; it changes nothing before an action is confirmed on a page. Stop it with Ctrl-C.

    \b
    Example:
      tidegate console flights.yaml
    """
    application = load(file)
    from tidegate.console.access import SHORTEST_TOKEN
    from tidegate.console.server import serve

    if token is not None and len(token) < SHORTEST_TOKEN:
        remedy = f"choose at least {SHORTEST_TOKEN} characters, or leave --token out"
        raise UserError("the token is too short", value=f"{len(token)} characters", remedy=remedy)
    as_json = wants_json()  # known in this thread alone; addresses are announced by those that serve pages

    def announce(url: str) -> None:
        click.echo(json.dumps({"address": url}) if as_json else f"open {url}")

    with suppress(KeyboardInterrupt):
        serve(application, str(file), host=host, port=port, token=token, announce=announce)
