"""A configuration that was edited on a page: what it would do to what an operator holds. Nothing is changed."""

from __future__ import annotations

from typing import NamedTuple

import yaml

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application, application_of, parse, settings_of
from tidegate.runtime.doctor.change_preview import ChangePreview, Forecast, checked_preview

WIDTH = 600
"""Width of the picture."""


class Part(NamedTuple):
    """A part of what is held: `released`, `lost` or `held`, how many records, and where it is in the picture."""

    what: str
    records: int
    x: int
    width: int


def options_text(config: OperatorConfig) -> str:
    """Return the options of the operator as a file has them."""
    return str(yaml.safe_dump(settings_of(config), sort_keys=False, default_flow_style=False))


def preview_of(application: Application, name: str, text: str) -> ChangePreview:
    """Return what the operator's options in the text would do, as `tidegate plan` does for a file.

    The rest of the application stays as it is, with the modules whose functions it allows. Raise ConfigurationError
    with all problems of the options, and UserError if the text is not YAML.
    """
    options = parse(text, "the options")
    if not isinstance(options.get("kind"), str):
        raise UserError("the options name no kind", value=name, remedy=f"kind: {application.operators[name].kind}")
    others = {each: settings_of(config) for each, config in application.operators.items()}
    checked = application_of(
        {
            "application": application.application,
            "lake": application.lake.url,
            "keep_output": "forever",
            "kafka": application.kafka,
            "allow": list(application.allow),
            "operators": {**others, name: options},
        }
    )
    return checked_preview(application.with_operator(name, checked.operators[name]), name)


def picture_of(forecast: Forecast) -> list[Part]:
    """Return the parts of what is held: what would be released, lost, and held afterwards."""
    counts = {"released": forecast.released, "lost": forecast.lost, "held": forecast.held_after}
    whole, x, parts = max(1, sum(counts.values())), 0, []
    for what, records in counts.items():
        width = round(WIDTH * records / whole)
        parts.append(Part(what, records, x, width))
        x += width
    return parts
