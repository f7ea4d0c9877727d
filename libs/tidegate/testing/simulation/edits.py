"""Edits of an application's file, as a person makes them: planned before they are applied."""

from __future__ import annotations

from random import Random

from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.runtime.configuration.application import Application, config_of, settings_of
from tidegate.runtime.configuration.changes import REMEDY
from tidegate.runtime.doctor.change_preview import preview_change
from tidegate.runtime.environment import Environment
from tidegate.testing.simulation.settings import Edit

_MOST_PLANS = 4
"""How many edits a person plans until one is live."""


def plan_edit(
    application: Application, name: str, edit: Edit, environment: Environment, generator: Random
) -> Application | None:
    """Return the application with an edited operator that its log can go on with; None if no plan allows an edit."""
    for _ in range(_MOST_PLANS):
        edited = _edited(application, name, edit, generator)
        if edited is not None and preview_change(edited, name, environment).status == "live":
            return edited
    return None


def is_refusal(error: BaseException | None) -> bool:
    """Return whether a driver has ended with the error because its log refuses the changes of its file."""
    return isinstance(error, UserError) and error.remedy == REMEDY


def _edited(application: Application, name: str, edit: Edit, generator: Random) -> Application | None:
    """Return the application with an edited operator; None if there is no such configuration."""
    options = edit(settings_of(application.operators[name]), generator)
    try:
        return application.with_operator(name, config_of(options))
    except ConfigurationError:
        return None
