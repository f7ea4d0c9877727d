"""The table of a pipeline that has its rows in its own input: how it is written, and which step joins it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from tidegate.contracts.errors import InvalidValue
from tidegate.operators.pipeline.rules.places import Place, as_config
from tidegate.operators.pipeline.rules.steps import Stateful, StepRules
from tidegate.operators.registry import kind_of, kinds_where


def read(raw: Any) -> Stateful | None:
    """Return the table as a step, with the options that a file has. Raise InvalidValue, or ValidationError."""
    if raw is None or isinstance(raw, Stateful):
        return raw
    if not isinstance(raw, Mapping) or raw.get("kind") not in kinds_where("is_table"):
        raise InvalidValue("not a table", f"write name, kind ({', '.join(kinds_where('is_table'))}) and its options")
    given = {name: value for name, value in raw.items() if name not in Stateful.OWN}
    return Stateful.model_validate({"name": raw.get("name"), "rules": kind_of(raw["kind"]).rules.model_validate(given)})


def as_written(table: Stateful | None) -> dict[str, Any] | None:
    """Return the table as a file would have it."""
    return None if table is None else table.model_dump(mode="json", by_alias=True)


def check(table: Stateful, steps: Sequence[StepRules], places: Sequence[Place]) -> None:
    """Raise ValidationError unless one of the steps joins the table and can, and none has its name."""
    joins = [at for at, step in enumerate(steps) if isinstance(step, Stateful) and step.rules.reads()]
    problems = [
        _detail(at, InvalidValue(f"the table is named {table.name}, too", "give the table another name"))
        for at, step in enumerate(steps)
        if getattr(step, "name", None) == table.name
    ]
    if not joins:
        problems.append(_detail(len(steps) - 1, InvalidValue(f"no step joins the table {table.name}", "add a join")))
    for at in joins:
        problems += [_detail(at, conflict) for conflict in _conflicts(table, steps[at], places[at])]
    if problems:
        raise ValidationError.from_exception_data("steps", problems)


def _conflicts(table: Stateful, step: StepRules, place: Place) -> list[InvalidValue]:
    """Return why the step cannot join the table. Behind windows it looks up plain keys in a table without windows."""
    assert isinstance(step, Stateful)
    if [read.table for read in step.rules.reads()] != [table.name]:
        return [InvalidValue(f"it joins another table than {table.name}", f"write table: {table.name}")]
    known = as_config(table.rules).as_table()
    assert known is not None
    behind_windows = place.windowed and not place.is_input
    known = known._replace(key_format=None, windowed=known.windowed or behind_windows)
    return [*as_config(step.rules).table_conflicts(known)]


def _detail(at: int, error: InvalidValue) -> InitErrorDetails:
    return InitErrorDetails(type="value_error", loc=(at,), input=None, ctx={"error": error})
