"""Programs that express a configuration with the methods of the Python interface."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hypothesis import assume

import tidegate as tg
from tidegate.application.evictors import Evictor
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.runtime.configuration.application import settings_of

FORMATS = {"bytes": tg.bytes_(), "string": tg.string(), "json": tg.json()}
WINDOWED = ("headers", "session")


def application(**settings: Any) -> tg.Application:
    """An application without operators."""
    given = {"kafka": "127.0.0.1:9092", "lake": "./lake", "keep_output": "30d", **settings}
    return tg.Application("flights", **given)


def write(app: tg.Application, name: str, config: OperatorConfig) -> None:
    """Define the operator with methods; each of its options is passed to one of them."""
    options = settings_of(config)
    kind = options.pop("kind")
    if kind == "table_history":
        app.table(_input(options), name=name, history=options.pop("history_retention", None), **_source(options))
        assert options == {}
        return
    output, windows = options.pop("output", None), options.pop("output_windows", None)
    steps = options.pop("steps", None)
    stream = _stream(app, name, options)
    if steps is None:
        _end(VERBS[kind](stream, options), output, windows)
    else:
        _write_steps(stream, steps, output, windows)
    assert options == {}, "every option has a method"


def _end(results: Any, output: str | None, windows: str | None = None) -> None:
    if windows is not None:
        results.to(output or "out", key=tg.kafka_windows())
    elif output is not None:
        results.to(output)
    else:
        results.keep()


def _stream(app: tg.Application, name: str, options: dict[str, Any]) -> Any:
    windows = options.get("windows")
    begin = app.windowed_stream if windows in WINDOWED or isinstance(windows, dict) else app.stream
    return begin(_input(options), name=name, **_source(options))


def _input(options: dict[str, Any]) -> str | list[str]:
    topic, further = options.pop("input"), options.pop("further_inputs", [])
    return [topic, *further] if further else topic


def _write_steps(stream: Any, steps: list[dict[str, Any]], output: str | None, windows: str | None) -> None:
    """Define the steps in their order. Results that no step reads and no topic gets are kept, too."""
    named, rows = {"input": stream}, stream
    for at, step in enumerate(steps):
        options = dict(step)
        sources = options.pop("from", None)
        if sources is not None:
            first, *others = [named[each] for each in ([sources] if isinstance(sources, str) else sources)]
            rows = first
            for other in others:
                rows = rows.merge(other)
        if "to" in options:
            rows.to(options["to"])
            continue
        options.pop("keep", None)
        rows = _step(rows, options)
        named[step.get("name", "")] = rows
        if _is_kept(steps, at):
            rows.keep()
    if output is not None or not steps or "to" not in steps[-1]:
        _end(rows, output, windows)


def is_in_order_of_ends(steps: list[dict[str, Any]]) -> bool:
    """Whether each step stands where a program defines it: with the chain that it is part of, when that one ends."""
    places, reads, defined = {"input": -1}, list[list[int]](), {-1}
    for at, step in enumerate(steps):
        behind = reads[at - 1] if at and "to" in steps[at - 1] else [at - 1]
        reads.append([places[name] for name in _sources(step)] or behind)
        places[step.get("name", "")] = at
        if "to" in step or _is_kept(steps, at):
            defined |= _with_ancestors(reads, at)
            if not defined >= {*range(at)}:
                return False
    return True


def _with_ancestors(reads: list[list[int]], at: int) -> set[int]:
    return {at} if at < 0 else {at}.union(*(_with_ancestors(reads, each) for each in reads[at]))


def _is_kept(steps: list[dict[str, Any]], at: int) -> bool:
    """Whether the results of the step are kept: as it says, or because no step reads them and no topic gets them."""
    behind = steps[at + 1 :]
    read = {name for each in behind for name in _sources(each)}
    unread = bool(behind) and "from" in behind[0] and steps[at].get("name") not in read
    return bool(steps[at].get("keep")) or unread


def _sources(step: dict[str, Any]) -> list[str]:
    sources = step.get("from", [])
    return [sources] if isinstance(sources, str) else sources


def _step(rows: Any, options: dict[str, Any]) -> Any:
    if "kind" in options:
        found = VERBS[options.pop("kind")](rows, options)
        assert options == {}, "every option of a step has a method"
        return found
    name = options.pop("name", None)
    if "require" in options:
        rows = rows.require(options["require"], options["reason"])
    elif {"map", "flat_map"} & options.keys() or isinstance(options.get("filter"), dict):
        [verb] = {"filter", "map", "flat_map"} & options.keys()
        rows = getattr(rows, verb)(_function(options[verb]["function"] if verb == "filter" else options[verb]))
    else:
        [(verb, fields)] = options.items()
        rows = getattr(rows, verb)(**fields) if isinstance(fields, dict) else getattr(rows, verb)(fields)
    return rows if name is None else rows.named(name)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _name(options: dict[str, Any]) -> dict[str, Any]:
    """The name and the fields of a step's results, if it is a step of a pipeline."""
    return {name: options.pop(name) for name in ("name", "emits") if name in options}


def _source(options: dict[str, Any]) -> dict[str, Any]:
    same = (
        "time",
        "max_ahead",
        "idle_after",
        "dead_letters",
        "rewind_window",
        "versions",
        "hold_for_readers",
        "windows",
    )
    given = {name: options.pop(name) for name in same if name in options}
    if isinstance(given.get("windows"), dict):
        given["windows"] = tg.time_windows(given["windows"]["time"])
    given |= {side: FORMATS[options.pop(f"{side}_format")] for side in ("key", "value") if f"{side}_format" in options}
    given |= {side: _type(options.pop(side)) for side in ("key", "value") if side in options}
    if "headers" in options:
        given["headers"] = {name: _type(form) for name, form in options.pop("headers").items()}
    if "timestamp" in options:
        written = options.pop("timestamp")
        given["timestamp"] = tg.timestamp(_field(written), unit=written.get("unit", "ms"))
    return given


def _type(written: Any) -> tg.Format:
    return tg.json(written["json"]) if isinstance(written, dict) else getattr(tg, written)()


def _suppress(stream: Any, options: dict[str, Any]) -> Any:
    limits = _bounds(options.pop("buffer", None))
    until = options.pop("until", None)
    if until == "window_close":
        limits = [tg.window_close(grace=options.pop("grace", None)), *limits]
        options.pop("timer", None)  # it says when windows leave, which their close does
    elif until is not None:
        limits = [tg.time_limit(until["time_limit"]), *limits]
    others = {name: options.pop(name) for name in ("timer", "bytes_of", "max_lateness") if name in options}
    return stream.suppress(*limits, **others, **_name(options))


def _join_stream(stream: Any, options: dict[str, Any]) -> Any:
    how, right = options.pop("join"), options.pop("right")
    return stream.join_stream(right, how=how, **{name: options.pop(name) for name in ("before", "after", "grace")})


def _deduplicate(stream: Any, options: dict[str, Any]) -> Any:
    bounds = _bounds(options.pop("buffer", None))
    given = {name: options.pop(name) for name in ("within", "grace") if name in options}
    return stream.deduplicate(*bounds, **given, **_name(options))


def _bounds(buffer: dict[str, Any] | None) -> list[Any]:
    if buffer is None:
        return []
    makers = {"max_keys": tg.max_keys, "max_bytes": tg.max_bytes}
    return [make(buffer[name], when_full=buffer["when_full"]) for name, make in makers.items() if name in buffer]


def _join(stream: Any, options: dict[str, Any]) -> Any:
    table = tg.Table(tg.application.definitions.definition.Definition(options.pop("table")), stream.definitions)
    names = ("grace", "wait_for_table", "before_history", "joiner")
    given = {name: options.pop(name) for name in names if name in options}
    return stream.join(table, how=options.pop("join"), **given, **_name(options))


def _aggregate(stream: Any, options: dict[str, Any]) -> Any:
    window, buffer = stream.window(_window(options.pop("window"))), _bounds(options.pop("buffer", None))
    aggregate, emit = options.pop("aggregate"), options.pop("emit", None)
    given = {name: options.pop(name) for name in ("every", "retention") if name in options} | _name(options)
    given |= {"evictor": _evictor(options.pop("evictor"))} if "evictor" in options else {}
    given |= {"emit": emit} if emit != "final" else {}
    if "function" in aggregate:
        results = window.aggregate(aggregate["function"], **given)
    elif "reduce" in aggregate:
        results = window.reduce(aggregate["reduce"]["function"], emits=aggregate["reduce"]["emits"], **given)
    elif aggregate == {"count": True}:
        results = window.count(**given)
    else:
        own = {name: value for name, value in aggregate.items() if value is True or {"field", "path"} & {*value}}
        named = {name: _named(value) for name, value in aggregate.items() if name not in own}
        results = window.aggregate(*(_part(*each) for each in own.items()), **named, **given)
    return results.suppress(tg.window_close(), *buffer) if emit == "final" else results


def _part(name: str, value: Any) -> tg.Aggregate:
    make: Any = getattr(tg, name)
    return make() if value is True else make(_field(value))  # type: ignore[no-any-return]


def _named(value: Any) -> tg.Aggregate:
    return tg.count() if value == "count" else _part(*next(iter(value.items())))


def _field(value: Any) -> str:
    """The text that names the field; a top-level field with a dot in its name has none."""
    found = value if isinstance(value, str) else value.get("field") or value["path"]
    if isinstance(value, dict) and "field" in value:
        assume("." not in found)
    return str(found)


def _window(options: dict[str, Any]) -> Any:
    if "unlimited" in options:
        return tg.unlimited()
    kind = next(kind for kind in ("tumbling", "hopping", "session") if kind in options)
    return getattr(tg, kind)(options.pop(kind), **options)


def _evictor(options: dict[str, Any]) -> Evictor:
    when = {"when": options.pop("when")} if options.get("when") else {}
    [(kind, value)] = options.items()
    if kind == "delta":
        distance = value["distance"]
        named = {"distance": distance} if isinstance(distance, str) else {}
        field = _field(distance) if isinstance(distance, dict) else None
        return tg.near_last(value["threshold"], field, **named, **when)
    if kind == "function" and isinstance(value, dict):
        return tg.evict(**value)
    make: Any = {"count": tg.newest, "time": tg.recent, "function": tg.evict}[kind]
    return make(value, **when)  # type: ignore[no-any-return]


VERBS = {
    "suppression": _suppress,
    "stream_table_join": _join,
    "windowed_aggregation": _aggregate,
    "deduplicate": _deduplicate,
    "stream_stream_join": _join_stream,
}
