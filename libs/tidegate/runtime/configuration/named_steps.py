"""An operator, or a step of a pipeline, as a person names it: `OPERATOR` or `OPERATOR.STEP`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.operators.registry import kind_of
from tidegate.runtime.configuration.application import Application


class NamedStep(NamedTuple):
    """A step that holds state, with its rules; `step` is empty for an operator that is no pipeline."""

    operator: str
    step: str
    rules: OperatorRules

    def __str__(self) -> str:
        return f"{self.operator}.{self.step}" if self.step else self.operator


def step_named(
    application: Application, name: str, suits: Callable[[OperatorRules], bool], otherwise: str
) -> NamedStep:
    """Return the step of that name; of a pipeline the step may be left out if only one of its steps suits.

    Raise UserError if there is none, or if it does not suit: `otherwise` is the problem then.
    """
    operator, _, step = str(name).partition(".")
    known = [each for each in _steps(application) if suits(each.rules)]
    found = [each for each in known if each.operator == operator and step in ("", each.step)]
    if len(found) == 1:
        return found[0]
    remedy = f"name one of these: {', '.join(map(str, found or known)) or 'the file has none'}"
    if operator not in application.operators:
        raise UserError("no such operator in the file", value=name, remedy=remedy)
    if step and step not in (each.step for each in _steps(application) if each.operator == operator):
        raise UserError("no such step", value=name, remedy=remedy)
    raise UserError("a pipeline has several such steps" if found else otherwise, value=name, remedy=remedy)


def step_with_windows(application: Application, name: str) -> NamedStep:
    """Return the step of that name, which holds windows. Raise UserError as `step_named`."""
    return step_named(application, name, lambda rules: kind_of(rules.kind).holds_windows, "it holds no windows")


def _steps(application: Application) -> Iterator[NamedStep]:
    for name, config in application.operators.items():
        for step, rules in (config.operators or {"": config}).items():
            yield NamedStep(name, step, rules)
