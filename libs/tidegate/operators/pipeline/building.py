"""Builds a pipeline's steps from its rules: operators, and functions of a flow.

Consecutive steps with expressions are one function; a step that calls a function of the user's own, or that writes
values in another format, is one by itself.
"""

from __future__ import annotations

from tidegate.contracts.flow import Stateless
from tidegate.contracts.operator import Operator
from tidegate.operators.pipeline.config import Encode, FilterBy, FlatMap, Map, PipelineRules, Stateful
from tidegate.operators.pipeline.evaluated.calling import FunctionStep
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.evaluated.encoding import encoding
from tidegate.operators.pipeline.operator import Pipeline
from tidegate.operators.pipeline.passage.stateless import merging
from tidegate.operators.pipeline.rules.graph import Graph, Node
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.steps import Evaluated
from tidegate.operators.pipeline.steps import Step
from tidegate.operators.registry import operator_for


def pipeline_of(rules: PipelineRules) -> Pipeline:
    """Return the operator that the rules configure."""
    return Pipeline(*steps_of(rules))


def steps_of(rules: PipelineRules) -> tuple[Step, ...]:
    """Return the steps of the pipeline, each behind those that it reads."""
    holds, places, passes_time = rules.holds(), rules.places(), rules.time == "pipeline"
    return tuple(
        Step(
            name=node.name,
            does=_does(node, places[node.at]),
            reads=node.reads,
            hold=holds.get(node.name),
            passes_time=passes_time,
            kept=node.kept,
            multiplies=isinstance(node.steps[0], FlatMap) if node.steps else False,
        )
        for node in Graph(rules.steps).nodes()
    )


def _does(node: Node, place: Place) -> Operator | Stateless:
    if not node.steps:
        return merging()
    if isinstance(node.steps[0], Stateful):
        return operator_for(node.steps[0].rules)
    if isinstance(node.steps[0], FilterBy | Map | FlatMap):
        return FunctionStep(node.steps[0], place)
    if isinstance(node.steps[0], Encode):
        return encoding(node.steps[0], place)
    return compiled([step for step in node.steps if isinstance(step, Evaluated)], place)
