"""Pipelines: operators and stateless steps, chained per partition within one batch, with one state and one log.

`PipelineRules` configure the steps; `Pipeline` is the operator. It is given the operators of its steps, so this folder
imports no kind.
"""

from __future__ import annotations

from tidegate.contracts.kind import Kind
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig, PipelineRules
from tidegate.operators.pipeline.operator import Pipeline
from tidegate.operators.pipeline.steps import INPUT, Step
from tidegate.operators.pipeline.views import CAUSES, register

__all__ = ["INPUT", "KIND", "Pipeline", "PipelineConfig", "PipelineRules", "Step"]

KIND = Kind(
    name="pipeline",
    config=PipelineConfig,
    rules=PipelineRules,
    operator=pipeline_of,
    register_views=register,
    causes=CAUSES,
)
