"""In which formats views show keys and values at the places of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.values import PRIMITIVES
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.reading import behind
from tidegate.operators.pipeline.rules.steps import Sink, Stateful, Stateless, StepRules
from tidegate.operators.pipeline.rules.value_types import shown_as, values_of

_TEXTS = {"string", "json"}


def of_results(steps: Sequence[StepRules], places: Sequence[Place], config: OperatorRules) -> ShownAs:
    """Return the format of the values that are written, or that nobody reads."""
    written = [places[each.at] for each in Graph(steps).written()]
    return _common(_format_at(place, config) for place in (*written, places[-1]))


def keys_of_results(steps: Sequence[StepRules], places: Sequence[Place], config: OperatorRules) -> ShownAs:
    """Return the format of the keys of what is written, or that nobody reads."""
    written = [places[each.at] for each in Graph(steps).written()]
    return _common(_keys_at(place, config) for place in (*written, places[-1]))


def keys_of_step(steps: Sequence[StepRules], places: Sequence[Place], config: OperatorRules, name: str) -> ShownAs:
    """Return the format of the keys of what the step of that name holds and emits; without such a step of results."""
    for step, place in zip(steps, places, strict=False):
        if not isinstance(step, Sink) and step.name == name:
            return _keys_at(_behind(step, place), config)
    return keys_of_results(steps, places, config)


def _keys_at(place: Place, config: OperatorRules) -> ShownAs:
    if place.rekeyed:
        return shown_as(place.key) or "bytes"
    if isinstance(place.key, str) or "key_format" in config.model_fields_set:
        return config.key_format
    return place.key


def of_step(steps: Sequence[StepRules], places: Sequence[Place], config: OperatorRules, name: str) -> ShownAs:
    """Return the format of the values that the step of that name holds and emits.

    Rows of steps without a name of their own, which the log names by their place, are results.
    """
    for step, place in zip(steps, places, strict=False):
        if not isinstance(step, Sink) and step.name == name:
            return _common(_format_at(each, config) for each in (place, _behind(step, place)))
    return of_results(steps, places, config)


def _behind(step: Stateful | Stateless, place: Place) -> Place:
    if isinstance(step, Stateful):
        table = None if step.table_value is None else values_of(step.table_value)
        return place.behind(step.rules, step.emits, table)
    return behind(step, place)


def _format_at(place: Place, config: OperatorRules) -> ShownAs:
    values = place.values
    if values.form not in (*PRIMITIVES, "avro", "protobuf"):
        return "json"
    if values.form in ("avro", "protobuf") and "value_format" in config.model_fields_set:
        return config.value_format
    if values.registered is not None:
        return values.registered
    return config.value_format if values.form == "bytes" else shown_as(values.form) or "bytes"


def _common(formats: Iterable[ShownAs]) -> ShownAs:
    """Return the format of rows of several: where one cannot show all, they are bytes."""
    found = {*formats}
    if len(found) == 1:
        return found.pop()
    return "string" if found <= _TEXTS else "bytes"
