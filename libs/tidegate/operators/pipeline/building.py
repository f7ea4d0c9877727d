"""Builds a pipeline's steps from its rules: operators, and a function for each run of stateless steps."""

from __future__ import annotations

from tidegate.contracts.flow import Stateless
from tidegate.contracts.operator import Operator
from tidegate.operators.pipeline.config import PipelineRules, Stateful
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.operator import Pipeline
from tidegate.operators.pipeline.rules.graph import Graph, Node
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.stateless import merging
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
        )
        for node in Graph(rules.steps).nodes()
    )


def _does(node: Node, place: Place) -> Operator | Stateless:
    if not node.steps:
        return merging()
    if isinstance(node.steps[0], Stateful):
        return operator_for(node.steps[0].rules)
    return compiled([step for step in node.steps if not isinstance(step, Stateful)], place)
