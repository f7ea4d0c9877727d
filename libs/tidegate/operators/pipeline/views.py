"""Spark SQL views of pipelines: those of each step, by its own kind."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.config import OperatorRules
from tidegate.operators.pipeline.config import PipelineRules, Stateful
from tidegate.operators.pipeline.rules.places import WINDOW, Place
from tidegate.operators.registry import kind_of
from tidegate.operators.views import create_view, register_emissions, register_refused


def register(spark: Any, name: str, config: PipelineRules) -> list[str]:
    """Create the views of each step that holds state, as `<name>_<step>_<view>`, and return their names.

    They are those that an operator of the step's kind has, such as `<name>_<step>_buffer` of a suppression, over
    `<name>_<step>_log`, the log's rows of that step. `<name>_steps` has where each step stands: partition, step,
    stream_time (ms), received (how many rows arrived at it). The views `<name>_late` and `<name>_rejected` say which
    step refused a row, and which record of the input caused it (`step`, `source`). `<name>_emissions` has the bounds of
    the windows of keys, ms.
    """
    register_refused(spark, name, config, "step", "source")
    *before, last = config.places()
    register_emissions(spark, name, _shown_at(last, config, config), *(WINDOW if last.windowed else ()))
    views = [_register_steps(spark, name)]
    for step, place in zip(config.steps, before, strict=True):
        if isinstance(step, Stateful):
            views += _register_step(spark, name, step.name, _shown_at(place, step.rules, config))
    return views


def _shown_at(place: Place, rules: OperatorRules, config: PipelineRules) -> OperatorRules:
    """Return the rules with the formats in which views show keys and values at that place."""
    value_format = config.value_format if place.values.form in ("bytes", "string") else "json"
    return rules.model_copy(update={"key_format": config.key_format, "value_format": value_format})


def _register_steps(spark: Any, name: str) -> str:
    newest = "row_number() OVER (PARTITION BY partition, key ORDER BY batch DESC, seq DESC)"
    return create_view(
        spark,
        f"{name}_steps",
        f"""SELECT partition, CAST(key AS STRING) AS step, timestamp AS stream_time, offset AS received
            FROM (SELECT *, {newest} AS age FROM {name}_log WHERE kind = 'state' AND step IS NULL) WHERE age = 1""",
    )


def _register_step(spark: Any, name: str, step: str, rules: Any) -> list[str]:
    """Create the views of one step. Rows that a step within the pipeline emits are not in the log."""
    log = create_view(spark, f"{name}_{step}_log", f"SELECT * FROM {name}_log WHERE step = '{step}'")
    views = kind_of(rules.kind).register_views(spark, f"{name}_{step}", rules)
    spark.catalog.dropTempView(f"{name}_{step}_emissions")
    return [log, *views]
