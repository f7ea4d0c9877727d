"""Spark SQL views of pipelines: those of each step, by its own kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.contracts.config.rules import OperatorRules
from tidegate.operators.pipeline.config import PipelineRules, Stateful
from tidegate.operators.pipeline.passage.results import own_columns
from tidegate.operators.pipeline.rules.graph import Graph, Node
from tidegate.operators.pipeline.rules.places import WINDOW
from tidegate.operators.registry import kind_of, operator_for
from tidegate.operators.views import create_view, register_emissions, register_refused

_SQL_TYPES = {pa.int8(): "TINYINT", pa.int64(): "BIGINT", pa.binary(): "BINARY", pa.string(): "STRING"}
"""The types of the columns that kinds add to a log."""


CAUSES = {"passed": "the record has come through all steps, of which none holds state"}
"""The rule behind each cause of an emission that is of no step with a kind."""


def register(spark: Any, name: str, config: PipelineRules) -> list[str]:
    """Create the views of each step, as `<name>_<step>_<view>`, and return their names.

    Of a step that holds state they are those that an operator of its kind has, such as `<name>_<step>_buffer` of a
    suppression, over `<name>_<step>_log`, the log's rows of that step. `<name>_<step>_emissions` has the results of a
    step with a name, if they are in the log: if they are kept, written to a topic, or read by no step. `<name>_steps`
    has where each step stands: partition, step, stream_time (ms), received (how many rows arrived at it). The views
    `<name>_emissions`, `<name>_late` and `<name>_rejected` say which step it was, and which record of the input caused
    the row (`step`, `source`). `<name>_emissions` has the bounds of the windows of keys, ms.
    """
    register_refused(spark, name, config, "step", "source")
    windowed = any(place.windowed for place in config.places())
    columns = ("step", "source", *(WINDOW if windowed else ()))
    register_emissions(spark, name, config.shown(), *columns)
    views = [_register_steps(spark, name)]
    if config.table is not None:
        rules = config.shown(config.table.name)
        views.append(_register_log(spark, name, config.table.name, rules))
        views += kind_of(rules.kind).register_views(spark, f"{name}_{config.table.name}", rules)
    for node in Graph(config.steps).nodes():
        named = [step for step in node.steps if step.name == node.name]
        for step in named[:1]:
            holds_state = isinstance(step, Stateful)
            views += _register_step(spark, name, node, config.shown(node.name), holds_state=holds_state)
    return views


def _register_steps(spark: Any, name: str) -> str:
    newest = "row_number() OVER (PARTITION BY partition, key ORDER BY batch DESC, seq DESC)"
    return create_view(
        spark,
        f"{name}_steps",
        f"""SELECT partition, CAST(key AS STRING) AS step, timestamp AS stream_time, offset AS received
            FROM (SELECT *, {newest} AS age FROM {name}_log WHERE kind = 'state' AND step IS NULL) WHERE age = 1""",
    )


def _register_step(spark: Any, name: str, node: Node, rules: OperatorRules, *, holds_state: bool) -> list[str]:
    """Create the views of one step. Results that other steps read are only in the log if they are kept."""
    own = f"{name}_{node.name}"
    views = [_register_log(spark, name, node.name, rules if holds_state else None)]
    emissions = register_emissions(spark, own, rules, "source")
    views += kind_of(rules.kind).register_views(spark, own, rules) if holds_state else []
    if node.kept:
        return [*views, emissions]
    spark.catalog.dropTempView(emissions)
    return views


def _register_log(spark: Any, name: str, step: str, rules: OperatorRules | None) -> str:
    """Create the view of the log's rows of a step; return its name. `rules`: those of a step that holds state.

    A log that is older than the step lacks its columns; they are null.
    """
    has = spark.table(f"{name}_log").columns
    fields = [] if rules is None else own_columns(operator_for(rules))
    lacking = [field for field in fields if field.name not in has]
    nulls = "".join(f", CAST(NULL AS {_SQL_TYPES[field.type]}) AS {field.name}" for field in lacking)
    return create_view(spark, f"{name}_{step}_log", f"SELECT *{nulls} FROM {name}_log WHERE step = '{step}'")
