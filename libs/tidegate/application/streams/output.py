"""Where results go: `to` and `keep` register an operator."""

from __future__ import annotations

from typing import Any

from tidegate.application.definitions.chains import unread
from tidegate.application.formats import Format, encoded
from tidegate.application.options import option_of
from tidegate.application.places import caller
from tidegate.application.streams.value import Value


def topic_option(topic: str) -> Any:
    """Return the topic as an option; Unusable if it is not text."""
    return option_of(
        topic, str, lambda each: each, "name a topic as text, or call .keep() to keep results in the lake alone"
    )


def written_as(results: Value, value: Format | None) -> Value:
    """Return the results with their values in that format; None: as they are."""
    return results if value is None else results._stateless(".to", {"encode": encoded(value)})


def register(results: Value, verb: str, options: dict[str, Any]) -> None:
    """Register the operator of which these are the results, with the options of its output."""
    faults = unread(results.definition, verb) if verb == "keep" else []
    results.definitions.add(results.definition.as_operator().after(f".{verb}", caller(), options, faults))
