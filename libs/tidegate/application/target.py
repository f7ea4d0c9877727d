"""What commands work on: a program with its application, `app.py:app`, or a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.application.loading import is_program, load_application
from tidegate.runtime.configuration import application as configuration

if TYPE_CHECKING:
    from tidegate.runtime.configuration.application import Application


def load(target: Path) -> Application:
    """Return the checked configuration of the target.

    Raise ConfigurationError with all problems; UserError if the target cannot be read or has no such application.
    """
    if is_program(target):
        return load_application(target).configuration()
    return configuration.load(target)
