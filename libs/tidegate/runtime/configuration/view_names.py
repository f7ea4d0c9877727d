"""Rules for the names of views, which all operators of a file share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import Problem


def view_problems(operators: Mapping[str, OperatorConfig]) -> Iterator[Problem]:
    """Yield a problem for each operator whose views have the names of those of a pipeline's step."""
    for pipeline, config in operators.items():
        for step in config.step_names:
            if (name := f"{pipeline}_{step}") in operators:
                yield Problem(
                    where=f"operators.{name}",
                    value=name,
                    cause=f"the step {step} of {pipeline} has views of the same names, such as {name}_emissions",
                    remedy="give the operator or the step another name",
                )
