"""The case of the law suite for pipelines, and what the references of their steps predict together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, cast

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.config import (
    Filter,
    FilterBy,
    FlatMap,
    Map,
    PipelineConfig,
    Require,
    Select,
    Sink,
    Stateful,
    WithColumns,
)
from tidegate.operators.pipeline.passage.results import changes_of
from tidegate.operators.pipeline.reference import Chain, Holder, Node, Passing, PassThrough, Stand, Under
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import Place, as_config
from tidegate.operators.pipeline.rules.steps import StepRules
from tidegate.operators.pipeline.steps import operators_of
from tidegate.operators.pipeline.strategies import (
    FEW,
    FILTER,
    JOINED_TABLES,
    passing_configs,
    pipeline_configs,
    pipelines_with_a_join,
)
from tidegate.operators.registry import test_part
from tidegate.operators.testing.cases import Case, columns, play, rejected_rows, window_columns
from tidegate.operators.testing.laws import NO_RECORD, Change, Event, Flush, Table, Trace, sort_by_step
from tidegate.operators.testing.strategies import histories

_NULL = "value: null"


def pipeline_reference(config: PipelineConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the references predict; a change may bring steps, or take some away."""
    history = _read_before_flushes(history)
    configs = [config, *(cast(PipelineConfig, event.config) for event in history if isinstance(event, Change))]
    chain = Chain.of(history, config.time == "pipeline", list(_unders(configs)))
    chain.play_all(partial(_played_under, clock_ms))
    if chain.stops:  # at the first of the bounds that steps reach: nothing is done from that event on
        stop, before = history[min(chain.stops)], history[: min(chain.stops)]
        whole = pipeline_reference(config, before, clock_ms)
        return replace(whole, stopped_at=stop.offset if isinstance(stop, Row) else NO_RECORD)
    trace, columns = chain.trace(), changes_of(operators_of(steps_of(configs[-1])).values()).names
    sort_by_step(trace)
    trace.held = [dict.fromkeys(columns) | row for row in [*trace.held, *map(_time_row, chain.standing())] if row]
    return trace


def _read_before_flushes(history: Sequence[Event]) -> list[Event]:
    """Return the history where tables that a flush's batch reads have a batch of their own.

    At a flush each step acts as in a batch without records, and only then lets everything go.
    """
    found, flushes = list[Event](), False
    for event in reversed(history):
        flushes = isinstance(event, Flush) or (flushes and isinstance(event, Table))
        found.append(event._replace(shares_batch=False) if flushes and isinstance(event, Table) else event)
    return found[::-1]


def _untaken(config: PipelineConfig) -> dict[Any, str]:
    """Return the steps without state, by number, or the input, whose results no step that holds state has taken."""
    names = {name: number for number, (name, _) in enumerate(_made(config))} | _merges(config)
    return {names.get(name, name): name for name in Graph(config.steps).untaken()}


def _merges(config: PipelineConfig) -> dict[str, Any]:
    """Return the numbers of the merges that topics get, by name: those of the steps, or the input, that are merged."""
    names = {number: name for number, (name, _) in enumerate(_made(config))}
    merges = [read for read in _read_by(config)[1] if len(read) > 1]
    return {"+".join(names.get(number, number) for number in read): tuple(read) for read in merges}


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


def _read_places(config: PipelineConfig) -> list[Place]:
    """Return the place that each step with results reads."""
    return [place for step, place in zip(config.steps, config.places(), strict=False) if not isinstance(step, Sink)]


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


def _unders(configs: Sequence[PipelineConfig]) -> Iterator[Under]:
    """Yield what the pipeline is under each of these configurations, which follow each other."""
    again, before = Counter[str](), set[str]()
    for config in configs:
        there = {*config.operators, *map(_passer, _untaken(config).values())}
        again.update(before - there)
        before = there
        yield _under(config, again)


def _passer(name: str) -> str:
    """Return the name of what passes the records of the input on behind a step."""
    return f"{name}:results"


def _under(config: PipelineConfig, again: Mapping[str, int]) -> Under:
    """Return what the pipeline is under this configuration. `again`: how often a step was removed before."""
    (steps, _), holds, nodes = _read_by(config), config.holds(), dict[Any, Node]()
    places = _read_places(config)
    for number, (name, step) in enumerate(_made(config)):
        does: Holder | Passing
        if isinstance(step, Stateful):
            windows, joins = step.rules.kind == "windowed_aggregation", bool(step.rules.reads())
            does = Holder(as_config(step.rules), holds[name], again.get(name, 0), windows, joins)
        else:
            does = _passing(name, step, places[number])
        nodes[number] = Node(name, name, steps[number], does)
    for name, read in _merges(config).items():
        nodes[read] = Node(name, name, read, Passing(name, lambda row: [row.value]))
    for number, name in _untaken(config).items():
        does = Holder(config, None, again.get(_passer(name), 0))
        nodes[_results_of(number)] = Node(_passer(name), name, [number], does)
    return Under(nodes, _emitting(config))


def _passing(name: str, step: StepRules, place: Place) -> Passing:
    """Return what a stateless step does with a row. Behind windows a null takes back a result, and passes.

    A function gets all fields of the value, so elsewhere it needs a value.
    """
    passing = _passing_values(name, step)
    if isinstance(step, Filter | Require) and not _reads_counts(step):
        return passing  # it reads keys alone
    if place.windowed and place.takes_back:
        return passing._replace(
            values=lambda row: [None] if row.value is None else passing.values(row),
            refusal=lambda row: None if row.value is None else passing.refusal(row),
        )
    needs_value = isinstance(step, Map | FlatMap | FilterBy | WithColumns) or _reads_counts(step)
    if place.values.form not in ("object", "single") or not needs_value:
        return passing
    return passing._replace(refusal=lambda row: _NULL if row.value is None else passing.refusal(row))


def _reads_counts(step: StepRules) -> bool:
    return FEW in (getattr(step, "filter", None), getattr(step, "require", None))


def _passing_values(name: str, step: StepRules) -> Passing:
    """Return what a stateless step does with a row that has a value."""
    if isinstance(step, FlatMap):
        return Passing(name, _repeated, multiplies=True)
    if isinstance(step, Select):
        return Passing(name, lambda row: [_measured(row)])
    if isinstance(step, WithColumns):
        return Passing(name, lambda row: [b'{"count":%d,"more":%d}' % (int(row.value or 0), int(row.value or 0) + 1)])
    if isinstance(step, Map):
        failure = _failure(step)
        return Passing(name, lambda row: [_measured(row)], lambda row: failure if row.key == b"ab" else None)
    if isinstance(step, Require):
        valid, reason = _condition(step.require), step.reason
        return Passing(name, lambda row: [row.value], lambda row: None if valid(row) else reason)
    wanted = _condition(step.filter if isinstance(step, Filter) else FILTER)
    return Passing(name, lambda row: [row.value] if wanted(row) else [])


def _condition(sql: str) -> Callable[[Row], bool]:
    """Return what a condition says of a row. Of a row without a key one on the key says nothing, which counts as no."""
    if sql == FEW:
        return lambda row: row.value is not None and int(row.value) < 3
    found = re.fullmatch(r"key (=|<>) '(\w+)'::BLOB", sql)
    assert found is not None, sql
    is_equal, key = found[1] == "=", found[2].encode()
    return lambda row: row.key is not None and (row.key == key) == is_equal


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


def _played(reference: Any, rules: OperatorConfig, clock_ms: int, events: Sequence[Event]) -> Trace:
    names = [name for read in rules.reads() for name in (None, read.table)]
    events = [event for event in events if not isinstance(event, Table) or event.name in names]
    if rules.reads() and not any(isinstance(event, Table) for event in events):
        return Trace()  # the table of another step comes first, or a change before any record
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


def _emitting(config: PipelineConfig) -> dict[Any, str]:
    """Return the steps with results, by number, whose results are emissions: kept, written, or read by no step."""
    (steps, topics), untaken = _read_by(config), _untaken(config)
    kept = {
        number: name
        for number, (name, step) in enumerate(_made(config))
        if getattr(step, "keep", False) or [number] in topics or not any(number in read for read in [*steps, *topics])
    } | {read: name for name, read in _merges(config).items()}
    results = {_results_of(number): name for number, name in untaken.items()}
    return {number: name for number, name in kept.items() if number not in untaken} | results


def _time_row(time: tuple[str, Stand]) -> dict[str, Any]:
    name, stand = time
    if stand == Stand():
        return {}
    return {"op": "put", "key": name.encode(), "timestamp": stand.stream_time, "offset": stand.received}


_HOLDING = PipelineConfig.model_validate(
    {"input": "records", "steps": [{"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}]}
)

_HISTORIES = histories() | histories(min_size=9)
"""Half of them are long enough to fill several steps."""

CASES = {
    "pipeline": Case(
        configs=pipeline_configs(),
        histories=_HISTORIES,
        reference=pipeline_reference,
        holding=_HOLDING,
        bytes_per_record=600,
    ),
    "pipeline_that_passes_records": Case(
        configs=passing_configs(),
        histories=_HISTORIES,
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
