"""The case of the law suite for pipelines, and what the references of their steps predict together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.changing_reference import ChangingChain, Holder, Life, Passing, Under
from tidegate.operators.pipeline.config import Filter, FilterBy, FlatMap, Map, PipelineConfig, Sink, Stateful
from tidegate.operators.pipeline.passage.results import changes_of
from tidegate.operators.pipeline.reference import Chain
from tidegate.operators.pipeline.rules.changes import is_chain
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import as_config
from tidegate.operators.pipeline.rules.steps import StepRules
from tidegate.operators.pipeline.steps import operators_of
from tidegate.operators.pipeline.strategies import REASON, pipeline_configs, pipelines_with_a_join
from tidegate.operators.registry import test_part
from tidegate.operators.testing.cases import Case
from tidegate.operators.testing.laws import Change, Event, Table, Trace
from tidegate.operators.testing.strategies import histories


def pipeline_reference(config: PipelineConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the references predict; of pipelines with branches, nothing changes that matters."""
    changed = [cast(PipelineConfig, event.config) for event in history if isinstance(event, Change)]
    if changed and all(is_chain(each.steps) for each in [config, *changed]):
        return _of_changing_chain([config, *changed], history, clock_ms)
    history = [event for event in history if not isinstance(event, Change)]
    chain, names = Chain.of(history, config.time == "pipeline"), _names(config)
    behind: Any = ["input"]
    for at, step in enumerate(config.steps):
        read = [_place(config, name) for name in step.sources] or behind
        behind = read if isinstance(step, Sink) else [at]
        if not isinstance(step, Sink):
            _play(config, chain, at, names[at], read, clock_ms)
    return _trace(
        config, chain, names, [event.offset for event in history if isinstance(event, Row) and not event.time_only]
    )


def _names(config: PipelineConfig) -> dict[int, str]:
    """Return the name of each step, by place: stateless steps that follow each other have one."""
    nodes = Graph(config.steps).nodes()
    return {at: node.name for node in nodes for at in range(node.at, node.at + len(node.steps))}


def _of_changing_chain(configs: Sequence[PipelineConfig], history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace of a chain; a change may bring steps, or take some away."""
    chain = ChangingChain.of(history, configs[0].time == "pipeline", _unders(configs))
    for life in chain.lives():
        chain.pass_by(life)
        chain.operate(life, partial(_played_under, clock_ms))
    chain.pass_by(None)
    taken = sum(isinstance(event, Row) and not event.time_only for event in history)
    chain.trace.applied = taken - sum(row["topic"] is None for row in [*chain.trace.late, *chain.trace.rejected])
    return _finished(configs[-1], chain.trace, chain.emissions(), chain.times)


def _unders(configs: Sequence[PipelineConfig]) -> list[Under]:
    """Return what the chain is under each of these configurations, which follow each other."""
    again, before, found = Counter[str](), set[str](), list[Under]()
    for config in configs:
        again.update(before - config.operators.keys())
        before = set(config.operators)
        found.append(_under(config, again))
    return found


def _under(config: PipelineConfig, again: Mapping[str, int]) -> Under:
    """Return what the chain is under this configuration. `again`: how often a step was removed before."""
    under, run, holds, names = Under({}, {}, ""), list[Passing](), config.holds(), _names(config)
    for at, step in enumerate(config.steps):
        if isinstance(step, Stateful):
            life = Life(step.name, again.get(step.name, 0))
            under.passings[life], run = run, []
            under.holders[life] = Holder(as_config(step.rules), holds[step.name])
        else:
            run.append(_passing(names[at], step))
    under.passings[None] = run
    return under._replace(last=names[len(config.steps) - 1])


def _passing(name: str, step: StepRules) -> Passing:
    """Return what a stateless step does with a row."""
    if isinstance(step, FlatMap):
        return Passing(name, _repeated, multiplies=True)
    if isinstance(step, Map):
        failure = _failure(step)
        return Passing(name, lambda row: [_measured(row)], lambda row: failure if row.key == b"ab" else None)
    if isinstance(step, Filter | FilterBy):
        return Passing(name, lambda row: [row.value] if _is_other(row) else [])
    return Passing(name, lambda row: [row.value], lambda row: None if _is_right(row) else REASON)


def _is_other(row: Row) -> bool:
    return row.key not in (None, b"a")


def _is_right(row: Row) -> bool:
    return row.key not in (None, b"ab")


def _measured(row: Row) -> bytes:
    return b'{"n":%s}' % (b"null" if row.key is None else b"%d" % len(row.key))


def _repeated(row: Row) -> list[bytes | None]:
    return [b'{"n":%d}' % n for n in range(len(row.key or b"") % 3)]


def _failure(step: Map) -> str:
    return f"{step.map} fails: ValueError: ab"


def _played_under(clock_ms: int, config: OperatorConfig, events: Sequence[Event]) -> Trace:
    return _played(test_part(config.kind, "cases").CASES[config.kind].reference, config, clock_ms, events)


def _place(config: PipelineConfig, name: str) -> Any:
    named = {step.name: at for at, step in enumerate(config.steps) if not isinstance(step, Sink)}
    return named.get(name, name)


def _play(config: PipelineConfig, chain: Chain, at: int, name: str, read: Sequence[Any], clock_ms: int) -> None:
    """Play the step at a place, which reads these."""
    step, before = config.steps[at], chain.merged(read)
    if isinstance(step, Stateful):
        reference = test_part(step.rules.kind, "cases").CASES[step.rules.kind].reference
        play = partial(_played, reference, as_config(step.rules), clock_ms)
        windows = step.rules.kind == "windowed_aggregation"
        chain.joins |= set() if step.rules.reads() is None else {at}
        chain.operate(at, name, before, play, config.holds()[name], windows=windows)
    elif isinstance(step, FlatMap):
        chain.flat_map(at, before, _repeated)
    elif isinstance(step, Map):
        chain.require(at, name, before, lambda row: row.key != b"ab", _failure(step))
        chain.map(at, _measured)
    elif isinstance(step, Filter | FilterBy):
        chain.filter(at, before, _is_other)
    else:
        chain.require(at, name, before, _is_right, REASON)


def _played(reference: Any, rules: OperatorConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    if rules.reads() is None:
        events = [event for event in events if not isinstance(event, Table)]
    found: Trace = reference(rules, events, clock_ms)
    return found


def _plain(history: list[Event]) -> list[Event]:
    """Return the history without headers: those that name windows would be those of a step before."""
    return [
        event._replace(rows=tuple(row._replace(headers=b"") for row in event.rows))
        if isinstance(event, Table)
        else event._replace(headers=b"")
        if isinstance(event, Row)
        else event
        for event in history
    ]


def _trace(config: PipelineConfig, chain: Chain, names: Mapping[int, str], offsets: Sequence[int]) -> Trace:
    emissions = chain.emissions({at: name for at, name in names.items() if _emits(config, at)})
    chain.trace.applied = chain.note_refused(offsets)
    return _finished(config, chain.trace, emissions, chain.times)


def _finished(
    config: PipelineConfig, trace: Trace, emissions: list[dict[str, Any]], times: Sequence[tuple[str, int, int]]
) -> Trace:
    columns = changes_of(operators_of(steps_of(config)).values()).names
    trace.emissions = emissions
    for rows in (trace.emissions, trace.late, trace.rejected):
        rows.sort(key=lambda row: row["step"])
    trace.stream_time = times[0][1]
    trace.held = [dict.fromkeys(columns) | row for row in [*trace.held, *map(_time_row, times)] if row]
    return trace


def _emits(config: PipelineConfig, at: int) -> bool:
    """Return whether the results of the step at a place are emissions: it is kept, written, or read by no step."""
    reads: list[list[Any]] = []
    behind: list[Any] = ["input"]
    for place, step in enumerate(config.steps):
        reads.append([_place(config, name) for name in step.sources] or behind)
        behind = reads[-1] if isinstance(step, Sink) else [place]
    readers = [config.steps[place] for place, read in enumerate(reads) if at in read]
    asked = getattr(config.steps[at], "keep", False)
    written = any(isinstance(step, Sink) for place, step in enumerate(config.steps) if reads[place] == [at])
    return asked or written or not readers


def _time_row(time: tuple[str, int, int]) -> dict[str, Any]:
    name, stream_time, received = time
    if (stream_time, received) == (NO_STREAM_TIME, 0):
        return {}
    return {"op": "put", "key": name.encode(), "timestamp": stream_time, "offset": received}


_HOLDING = PipelineConfig.model_validate(
    {"input": "records", "steps": [{"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}]}
)

CASES = {
    "pipeline": Case(
        configs=pipeline_configs(),
        histories=histories(),
        reference=pipeline_reference,
        holding=_HOLDING,
        bytes_per_record=600,
    ),
    "pipeline_with_a_join": Case(
        configs=pipelines_with_a_join(),
        histories=test_part("stream_table_join", "cases").CASES["stream_table_join"].histories.map(_plain),
        reference=pipeline_reference,
        holding=_HOLDING,
        bytes_per_record=600,
        changing=False,
    ),
}
