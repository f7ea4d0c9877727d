"""Builds a pipeline's steps from its rules: operators, and functions of a flow.

Consecutive steps with expressions are one function; a step that calls a function of the user's own, or that writes
values in another format, is one by itself.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.flow import Stateless
from tidegate.contracts.operator import Operator
from tidegate.contracts.records import STREAM_PORT, TABLE_PORT
from tidegate.operators.pipeline.config import Encode, FilterBy, FlatMap, Map, PipelineRules, SelectKey, Stateful
from tidegate.operators.pipeline.evaluated.calling import FunctionStep
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.evaluated.encoding import encoding
from tidegate.operators.pipeline.evaluated.rekeying import rekeying
from tidegate.operators.pipeline.operator import Pipeline
from tidegate.operators.pipeline.passage.pass_through import PassThrough
from tidegate.operators.pipeline.passage.stateless import merging, of_port
from tidegate.operators.pipeline.rules.graph import Graph, Node
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.steps import Evaluated
from tidegate.operators.pipeline.steps import INPUT, OwnTable, Step
from tidegate.operators.registry import operator_for


def pipeline_of(rules: PipelineRules) -> Pipeline:
    """Return the operator that the rules configure."""
    return Pipeline(*steps_of(rules))


def steps_of(rules: PipelineRules) -> tuple[Step, ...]:
    """Return the steps of the pipeline, each behind those that it reads."""
    holds, places, passes_time = rules.holds(), rules.places(), rules.time == "pipeline"
    graph = Graph(rules.steps)
    untaken = graph.untaken()
    steps = tuple(
        Step(
            name=node.name,
            does=_does(node, places[node.at]),
            reads=node.reads,
            hold=holds.get(node.name),
            passes_time=passes_time,
            kept=node.kept and node.name not in untaken,
            multiplies=isinstance(node.steps[0], FlatMap) if node.steps else False,
        )
        for node in graph.nodes()
    )
    # rule: untaken-passed-through
    steps = (*steps, *(_passing_through(name, rules) for name in untaken))
    return steps if rules.table is None else _with_table(rules.table, steps, rules)


def _passing_through(name: str, rules: PipelineRules) -> Step:
    """Return the step that makes results of the records of the input which a step without state leaves.

    It stands behind all others, so that the stream time of the partition is that of a step which the user has written.
    """
    return Step(name=f"{name}:results", does=PassThrough(rules), reads=(name,), passes_on=name)


def _with_table(table: Stateful, steps: tuple[Step, ...], rules: PipelineRules) -> tuple[Step, ...]:
    """Return the steps behind the two inputs of the pipeline: its table, and the steps, which read the stream."""
    stream, rows = f"{INPUT}:stream", f"{INPUT}:{table.name}"
    inputs = (
        Step(name=stream, does=of_port(STREAM_PORT), reads=(INPUT,)),
        Step(name=rows, does=of_port(TABLE_PORT), reads=(INPUT,)),
        Step(name=table.name, does=operator_for(table.rules), reads=(rows,)),
    )
    joins = {name: read for name, each in rules.operators.items() for read in each.reads()}
    return (*inputs, *(_behind(stream, step, joins.get(step.name)) for step in steps))


def _behind(stream: str, step: Step, joins: TableRead | None) -> Step:
    """Return the step where the rows of the stream are the input; a join looks up in the table of the pipeline."""
    reads = tuple(stream if name == INPUT else name for name in step.reads)
    return replace(step, reads=reads, table=None if joins is None else OwnTable(joins.table, joins.grace))


def _does(node: Node, place: Place) -> Operator | Stateless:
    if not node.steps:
        return merging()
    if isinstance(node.steps[0], Stateful):
        return operator_for(node.steps[0].rules)
    if isinstance(node.steps[0], FilterBy | Map | FlatMap):
        return FunctionStep(node.steps[0], place)
    if isinstance(node.steps[0], Encode):
        return encoding(node.steps[0], place)
    if isinstance(node.steps[0], SelectKey):
        return rekeying(node.steps[0], place)
    return compiled([step for step in node.steps if isinstance(step, Evaluated)], place)
