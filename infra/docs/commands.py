"""The reference of the `tidegate` command, made from click's own description of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from tidegate.cli.main import COMMANDS, main

HEAD = ("| option | what it does |", "| --- | --- |")


def command_reference() -> str:
    """Markdown with a chapter for each command, and one for each command of a group."""
    context = click.Context(main, info_name="tidegate")
    return "\n\n".join(part for name in COMMANDS for part in _chapters(main.get_command(context, name), name, context))


def _chapters(command: click.Command | None, name: str, above: click.Context) -> Iterator[str]:
    assert command is not None
    context = click.Context(command, info_name=name, parent=above)
    if not isinstance(command, click.Group):
        yield _chapter(command, context)
        return
    yield f"## {context.command_path}\n\n{_help(command)}"
    for below in command.list_commands(context):
        yield from _chapters(command.get_command(context, below), below, context)


def _chapter(command: click.Command, context: click.Context) -> str:
    level = "##" if context.parent is None or context.parent.parent is None else "###"
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    rows = [row for parameter in command.get_params(context) if (row := parameter.get_help_record(context))]
    shown = "\n".join([*HEAD, *(f"| `{name}` | {_cell(says)} |" for name, says in rows)])
    return f"{level} {context.command_path}\n\n{_help(command)}\n\n    {usage}\n\n{shown}"


def _help(command: click.Command) -> str:
    """The paragraphs of its help; an example, which click leaves as it is, is shown as code."""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\b", "")
    return "\n\n".join(_paragraph(part.strip("\n")) for part in text.split("\n\n") if part.strip())


def _paragraph(text: str) -> str:
    if text.startswith("Example"):
        lines = [line.strip() for line in text.partition(":")[2].splitlines() if line.strip()]
        return "Example:\n\n" + "\n".join(f"    {line}" for line in lines)
    return text.replace("<", "&lt;")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
