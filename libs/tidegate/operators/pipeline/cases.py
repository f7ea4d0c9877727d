"""The case of the law suite for pipelines, and what the references of their steps predict together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.config import Filter, PipelineConfig, Stateful
from tidegate.operators.pipeline.passage.results import changes_of
from tidegate.operators.pipeline.reference import Chain
from tidegate.operators.pipeline.rules.places import as_config
from tidegate.operators.pipeline.steps import operators_of
from tidegate.operators.pipeline.strategies import REASON, pipeline_configs
from tidegate.operators.registry import test_part
from tidegate.operators.testing.cases import Case
from tidegate.operators.testing.laws import Change, Event, Trace
from tidegate.operators.testing.strategies import histories


def pipeline_reference(config: PipelineConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the references predict; nothing of a pipeline changes while it holds something."""
    history = [event for event in history if not isinstance(event, Change)]
    chain = Chain.of(history, config.time == "pipeline")
    holds, run = config.holds(), ""
    for at, step in enumerate(config.steps):
        if isinstance(step, Stateful):
            reference = test_part(step.rules.kind, "cases").CASES[step.rules.kind].reference
            chain.operate(step.name, partial(_played, reference, as_config(step.rules), clock_ms), holds[step.name])
            run = ""
            continue
        run = run or str(at + 1)
        if isinstance(step, Filter):
            chain.filter(run, lambda row: row.key not in (None, b"a"))
        else:
            chain.require(run, lambda row: row.key not in (None, b"ab"), REASON)
    return _trace(config, chain, sum(isinstance(event, Row) and not event.time_only for event in history))


def _played(reference: Any, rules: OperatorConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    found: Trace = reference(rules, events, clock_ms)
    return found


def _trace(config: PipelineConfig, chain: Chain, taken: int) -> Trace:
    trace, names = chain.trace, changes_of(operators_of(steps_of(config)).values()).names
    for rows in (trace.late, trace.rejected):
        rows.sort(key=lambda row: row["step"])
    trace.emissions = chain.emissions()
    trace.applied = taken - sum(row["topic"] is None for row in [*trace.late, *trace.rejected])
    trace.stream_time = chain.times[0][1]
    trace.held = [dict.fromkeys(names) | row for row in [*trace.held, *map(_time_row, chain.times)] if row]
    return trace


def _time_row(time: tuple[str, int, int]) -> dict[str, Any]:
    name, stream_time, received = time
    if (stream_time, received) == (NO_STREAM_TIME, 0):
        return {}
    return {"op": "put", "key": name.encode(), "timestamp": stream_time, "offset": received}


CASES = {
    "pipeline": Case(
        configs=pipeline_configs(),
        histories=histories(),
        reference=pipeline_reference,
        holding=PipelineConfig.model_validate(
            {"input": "records", "steps": [{"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}]}
        ),
        bytes_per_record=600,
    ),
}
