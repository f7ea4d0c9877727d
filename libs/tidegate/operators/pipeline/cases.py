"""The case of the law suite for pipelines, and what the references of their steps predict together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any, cast

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.changing_reference import ChangingChain, Holder, Life, Under
from tidegate.operators.pipeline.config import Filter, FilterBy, FlatMap, Map, PipelineConfig, Sink, Stateful
from tidegate.operators.pipeline.passage.results import changes_of
from tidegate.operators.pipeline.reference import Chain, Passing, PassThrough
from tidegate.operators.pipeline.rules.changes import is_chain
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import as_config
from tidegate.operators.pipeline.rules.steps import StepRules
from tidegate.operators.pipeline.steps import operators_of
from tidegate.operators.pipeline.strategies import (
    JOINED_TABLES,
    REASON,
    passing_configs,
    pipeline_configs,
    pipelines_with_a_join,
)
from tidegate.operators.registry import test_part
from tidegate.operators.testing.cases import Case, columns, play, rejected_rows, window_columns
from tidegate.operators.testing.laws import Change, Event, Table, Trace, sort_by_step
from tidegate.operators.testing.strategies import histories


def pipeline_reference(config: PipelineConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the references predict.

    While a pipeline with branches changes, its steps stay where they are: each computes something else.
    """
    configs = [config, *(cast(PipelineConfig, event.config) for event in history if isinstance(event, Change))]
    if len(configs) > 1 and all(is_chain(each.steps) for each in configs):
        return _of_changing_chain(configs, history, clock_ms)
    chain = Chain.of(history, config.time == "pipeline")
    for number, read in enumerate(_read_by(config)[0]):
        _play(configs, chain, number, read, clock_ms)
    for number, name in _untaken(config).items():
        play = partial(_passed_through, config, clock_ms)
        chain.operate(
            _results_of(number), _passer(name), chain.merged([number]), play, [None], windows=False, shown=name
        )
    return _trace(configs, chain, [event.offset for event in history if isinstance(event, Row) and not event.time_only])


def _untaken(config: PipelineConfig) -> dict[Any, str]:
    """Return the steps without state, by number, or the input, whose results no step that holds state has taken."""
    names = {name: number for number, (name, _) in enumerate(_made(config))}
    return {names.get(name, name): name for name in Graph(config.steps).untaken()}


def _results_of(number: Any) -> tuple[str, Any]:
    """Return under which number the records are emitted that pass through behind a step."""
    return ("results", number)


def _passed_through(config: PipelineConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    """Return the trace of what passes the records of the input on."""
    reference = PassThrough(config)
    notes = play(reference, [event for event in events if not isinstance(event, Table)], clock_ms)
    return Trace(
        emissions=[columns(row) | {"cause": "passed"} | window_columns(window) for row, window in reference.emissions],
        rejected=rejected_rows(reference.rejected, config, notes),
        stream_time=reference.stream_time,
    )


def _made(config: PipelineConfig) -> list[tuple[str, StepRules]]:
    """Return the steps that have results, each with its name: stateless steps that follow each other have one."""
    names = _names(config)
    return [(names[at], step) for at, step in enumerate(config.steps) if not isinstance(step, Sink)]


def _read_by(config: PipelineConfig) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return what each step with results reads, and each topic: the input, or steps by number."""
    steps, topics, behind, numbers = list[list[Any]](), list[list[Any]](), list[Any](["input"]), dict[Any, Any]()
    for step in config.steps:
        read = [numbers.get(name, name) for name in step.sources] or behind
        if isinstance(step, Sink):
            behind = read
            topics.append(read)
        else:
            numbers[step.name], behind = len(steps), [len(steps)]
            steps.append(read)
    return steps, topics


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
        there = {*config.operators, *map(_passer, _untaken(config).values())}
        again.update(before - there)
        before = there
        found.append(_under(config, again))
    return found


def _passer(name: str) -> str:
    """Return the name of what passes the records of the input on behind a step."""
    return f"{name}:results"


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
    for name in _untaken(config).values():
        life = Life(_passer(name), again.get(_passer(name), 0))
        under.passings[life], run = run, []
        under.holders[life] = Holder(config, None, shown=name)
    under.passings[None] = run
    return under._replace(last=Graph(config.steps).last())


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
    if isinstance(config, PipelineConfig):
        return _passed_through(config, clock_ms, events)
    return _played(test_part(config.kind, "cases").CASES[config.kind].reference, config, clock_ms, events)


def _play(configs: Sequence[PipelineConfig], chain: Chain, number: int, read: Sequence[Any], clock_ms: int) -> None:
    """Play one of the steps, which reads these; it is another one after each change."""
    before = chain.merged(read)
    steps = [_made(config)[number] for config in configs]
    name, step = steps[0]
    if not isinstance(step, Stateful):
        chain.pass_by(number, before, [_passing(name, each) for name, each in steps])
        return
    play = partial(_played_as, name, as_config(step.rules), clock_ms)
    windows = step.rules.kind == "windowed_aggregation"
    chain.joins |= {number} if step.rules.reads() else set()
    chain.operate(number, name, before, play, [config.holds()[name] for config in configs], windows=windows)


def _played_as(name: str, rules: OperatorConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    """Return the trace of the step of that name, which has other rules after each change."""
    own = [Change(as_config(event.config.operators[name])) if isinstance(event, Change) else event for event in events]
    return _played_under(clock_ms, rules, own)


def _played(reference: Any, rules: OperatorConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    names = [name for read in rules.reads() for name in (None, read.table)]
    events = [event for event in events if not isinstance(event, Table) or event.name in names]
    if rules.reads() and not events:
        return Trace()  # the table of another step comes first
    found: Trace = reference(rules, events, clock_ms)
    return found


def _of_two_tables(history: list[Event]) -> list[Event]:
    """Return the history with two tables in turn; both are there from the beginning, with other versions."""
    first, named = history[0], cycle(JOINED_TABLES)
    assert isinstance(first, Table)
    again = first._replace(rows=tuple(row._replace(value=b"[%d]" % row.timestamp) for row in first.rows[1:]))
    return [
        event._replace(name=next(named)) if isinstance(event, Table) else event
        for event in (first, again, *history[1:])
    ]


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


def _trace(configs: Sequence[PipelineConfig], chain: Chain, offsets: Sequence[int]) -> Trace:
    emissions = chain.emissions([_emitting(config) for config in configs])
    chain.trace.applied = chain.note_refused(offsets)
    return _finished(configs[-1], chain.trace, emissions, chain.times)


def _finished(
    config: PipelineConfig, trace: Trace, emissions: list[dict[str, Any]], times: Sequence[tuple[str, int, int]]
) -> Trace:
    columns = changes_of(operators_of(steps_of(config)).values()).names
    trace.emissions = emissions
    sort_by_step(trace)
    trace.stream_time = times[0][1]
    trace.held = [dict.fromkeys(columns) | row for row in [*trace.held, *map(_time_row, times)] if row]
    return trace


def _emitting(config: PipelineConfig) -> dict[Any, str]:
    """Return the steps with results, by number, whose results are emissions: kept, written, or read by no step."""
    (steps, topics), untaken = _read_by(config), _untaken(config)
    return {
        number: name
        for number, (name, step) in enumerate(_made(config))
        if getattr(step, "keep", False) or [number] in topics or not any(number in read for read in steps)
        if number not in untaken
    } | {_results_of(number): name for number, name in untaken.items()}


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
    "pipeline_that_passes_records": Case(
        configs=passing_configs(),
        histories=histories(),
        reference=pipeline_reference,
        holding=_HOLDING,
        bytes_per_record=600,
        changing=False,
    ),
    "pipeline_with_a_join": Case(
        configs=pipelines_with_a_join(),
        histories=test_part("stream_table_join", "cases")
        .CASES["stream_table_join"]
        .histories.map(_plain)
        .map(_of_two_tables),
        reference=pipeline_reference,
        holding=_HOLDING,
        bytes_per_record=600,
        changing=False,
    ),
}
