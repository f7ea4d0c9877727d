"""Builds a pipeline's steps from its rules: operators, and a function for each run of stateless steps."""

from __future__ import annotations

from itertools import groupby

from tidegate.contracts.flow import Stateless
from tidegate.contracts.operator import Operator
from tidegate.operators.pipeline.config import PipelineRules, Stateful
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.operator import Pipeline
from tidegate.operators.pipeline.steps import INPUT, Step
from tidegate.operators.registry import operator_for


def pipeline_of(rules: PipelineRules) -> Pipeline:
    """Return the operator that the rules configure."""
    return Pipeline(*steps_of(rules))


def steps_of(rules: PipelineRules) -> tuple[Step, ...]:
    """Return the steps of the pipeline, in order. A run of stateless steps is named after the place of its first.

    No step that holds state can have such a name, because it begins with a digit.
    """
    holds, passes_time = rules.holds(), rules.time == "pipeline"
    found: list[Step] = []

    def add(name: str, does: Operator | Stateless) -> None:
        before = found[-1].name if found else INPUT
        found.append(Step(name=name, does=does, reads=(before,), hold=holds.get(name), passes_time=passes_time))

    places = rules.places()
    for stateless, group in groupby(enumerate(rules.steps), lambda each: not isinstance(each[1], Stateful)):
        run = list(group)
        if stateless:
            first = run[0][0]
            add(str(first + 1), compiled([step for _, step in run if not isinstance(step, Stateful)], places[first]))
        for _, step in run:
            if isinstance(step, Stateful):
                add(step.name, operator_for(step.rules))
    return tuple(found)
