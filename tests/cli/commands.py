"""The commands that `tidegate` has, for tests that hold for all of them."""

from __future__ import annotations

import click

from tidegate.cli.main import main


def leaves() -> list[tuple[str, click.Command]]:
    """(path such as `topics create`, command) of every command that is no group."""
    return sorted(_below(main, ""))


def _below(group: click.Group, path: str) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = f"{path} {name}".strip()
        found += _below(command, below) if isinstance(command, click.Group) else [(below, command)]
    return found
