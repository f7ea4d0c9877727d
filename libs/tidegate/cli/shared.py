"""What all commands share: `--json`, the Kafka options, and printing of results and errors.

Commands import heavy modules themselves, so that `--help` stays fast.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import click

from tidegate.contracts.errors import ConfigurationError, TidegateError, UserError

Command = TypeVar("Command", bound=Callable[..., Any])
_JSON = "tidegate.json"
DONE, FAILED, WRONG_USE = 0, 1, 2


def json_option(command: Command) -> Command:
    """Add the option `--json`, which `show` and `show_error` follow."""
    return click.option(
        "--json", is_flag=True, expose_value=False, help="Print results (stdout) and errors (stderr) as JSON."
    )(command)


def remember_json(context: click.Context, arguments: Sequence[str]) -> None:
    """Remember whether the command line has `--json`, for `wants_json()`."""
    context.meta[_JSON] = "--json" in arguments


def kafka_options(command: Command) -> Command:
    """Add `--bootstrap` and `-o NAME=VALUE`, and pass them to the command as `options`, named as in the Java client."""

    @click.option(
        "--bootstrap", metavar="HOST:PORT", default="127.0.0.1:9092", show_default=True, help="Address of a broker."
    )
    @click.option(
        "-o",
        "--option",
        "others",
        metavar="NAME=VALUE",
        multiple=True,
        help="Kafka client option by its Java name, such as security.protocol=SSL; repeatable.",
    )
    @functools.wraps(command)
    def with_options(*args: Any, bootstrap: str, others: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, options=pairs(others) | {"bootstrap.servers": bootstrap}, **kwargs)

    return cast(Command, with_options)


def pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping. Raise BadParameter if a text has no `=`."""
    if wrong := [text for text in given if "=" not in text]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return dict(text.split("=", 1) for text in given)


def show(result: Mapping[str, Any], text: str) -> None:
    """Print the result to stdout: the text, or the JSON with `--json`."""
    click.echo(json.dumps(result) if wants_json() else text)


def note(text: str) -> None:
    """Print progress to stderr, so that stdout has results only."""
    click.echo(text, err=True)


def show_error(error: TidegateError) -> None:
    """Print problem, value and remedy to stderr."""
    click.echo(json.dumps({"error": _as_json(error)}) if wants_json() else str(error), err=True)


def exit_code(error: TidegateError) -> int:
    """Return 2 for errors that the user can fix, 1 for all others."""
    return WRONG_USE if isinstance(error, UserError) else FAILED


def wants_json() -> bool:
    """Return True if the command was called with `--json`."""
    return bool(click.get_current_context().meta.get(_JSON, False))


def _as_json(error: TidegateError) -> dict[str, Any]:
    value = error.value if isinstance(error.value, str | int | float | None) else str(error.value)
    document: dict[str, Any] = {"problem": error.problem, "value": value, "remedy": error.remedy}
    if isinstance(error, ConfigurationError):
        document["problems"] = [
            {"where": each.where, "value": str(each.value), "cause": each.cause, "remedy": each.remedy}
            for each in error.problems
        ]
    return document
