"""A value of a wrong type is refused with problem, value and remedy, at every parameter of every public method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.application.programs import application
from tests.application.test_handles import Waiting, waiting
from tidegate.application import aggregates, evictors, formats, limits, windows
from tidegate.application.definitions.definition import Definition
from tidegate.application.running import Handle
from tidegate.contracts.errors import ConfigurationError, TidegateError
from tidegate.operators.registry import kind_of, kinds

pytestmark = pytest.mark.fast
__all__ = ["waiting"]
KINDS = [kind_of(name) for name in kinds()]
"""Imported here, because `waiting` empties the path."""


class Stranger:
    """A value of a type that nothing takes."""


WRONG: list[Any] = [
    Stranger(),
    b"bytes",
    5,
    -5.5,
    True,
    ["list"],
    {"a": Stranger()},
    {5},
    lambda: 1,
    timedelta(days=-1),
]
WRONG += [tg.string(), tg.count(), tg.time_limit("1s"), tg.tumbling("1h", grace=0), tg.newest(5), tg.count, None]
WRONG += [Path("x"), float("nan"), "", "text with spaces", application()]

Makers = dict[str, Callable[[tg.Application], Callable[..., Any]]]

MODULES = (aggregates, evictors, formats, limits, windows)
FUNCTIONS: Makers = {
    name: lambda app, function=function: function
    for module in MODULES
    for name, function in vars(module).items()
    if name in tg.__all__ and inspect.isfunction(function)
}


def stream(app: tg.Application) -> tg.Stream:
    return app.stream("departures", name="updates")


def windowed_stream(app: tg.Application) -> tg.WindowedStream:
    return app.windowed_stream("counts", name="updates", windows="headers")


def windowed(app: tg.Application) -> Any:
    return stream(app).window(tg.tumbling("1h", grace=0))


OWNERS: dict[str, Callable[[tg.Application], Any]] = {
    "Application": lambda app: app,
    "Stream": stream,
    "WindowedStream": windowed_stream,
    "Windowed": windowed,
    "WindowResults": lambda app: windowed(app).count(),
    "Rekeyed": lambda app: stream(app).select_key("timestamp"),
    "Table": lambda app: app.table("weather", history="1d"),
    "Handle": lambda app: defined(app).start(),
}
TYPES = [tg.Application, tg.Stream, tg.WindowedStream, tg.Windowed, tg.WindowResults, tg.Rekeyed]
METHODS: Makers = {
    f"{kind.__name__}.{name}": lambda app, owner=OWNERS[kind.__name__], name=name: getattr(owner(app), name)
    for kind in [*TYPES, tg.Table, Handle]
    for name, _ in inspect.getmembers(kind, callable)
    if not name.startswith("_") and (name != "start" or kind is tg.Application)
}
"""`start` of a chain needs a DataFrame; test_frames.py tries it."""
PUBLIC: Makers = {**FUNCTIONS, **METHODS, "Application": lambda app: tg.Application}


def defined(app: tg.Application) -> tg.Application:
    stream(app).suppress(tg.time_limit("1s")).keep()
    return app


SOUND: dict[str, Any] = {
    "topic": "departures",
    "name": "updates",
    "kafka": "x:1",
    "lake": "lake",
    "keep_output": "30d",
    "source": "application: flights",
    "schema": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]},
    "schemas": "schemas",
    "number": 17,
    "length": "1h",
    "grace": "5m",
    "advance": "10m",
    "gap": "5m",
    "duration": "1s",
    "count": 5,
    "size": 5,
    "when_full": "spill",
    "age": "1s",
    "threshold": 1.5,
    "how": "left",
    "right": "clicks",
    "before": "1m",
    "after": "1m",
    "within": "1h",
    "window": tg.tumbling("1h", grace=0),
    "close": tg.window_close(),
    "function": "module:function",
    "rules": tg.SuppressionRules(until={"time_limit": "1s"}),
    "query": "SELECT 1",
    "condition": "true",
    "reason": "it is wrong",
    "emits": {"delay": "int64"},
    "message": "R",
    "key": "timestamp",
    "partitions": 4,
}
MORE: dict[str, dict[str, Any]] = {
    "table": {"history": "1d"},
    "deduplicate": {"grace": "1h"},
    "to": {"topic": "results"},
    "through": {"topic": "results"},
    "timestamp": {"field": "at"},
    "evict": {"function": "module:function"},
    "protobuf": {"schema": 'syntax = "proto3"; message R { int32 n = 1; }'},
}
"""Further arguments of functions, or other ones."""
VARIADIC: dict[str, list[Any]] = {"limits": [tg.time_limit("1s")], "bounds": [], "aggregates": [tg.count()]}
"""Arguments that are sound, for parameters that are required."""


FIELDS: dict[str, dict[str, Any]] = {"with_columns": {"sound": "1"}, "select": {"sound": "1"}}
"""Fields that are sound, for methods that require one."""


def parameters() -> Iterator[tuple[str, str]]:
    """Every parameter of every public function and method."""
    for name, make in PUBLIC.items():
        for parameter in inspect.signature(function_of(name, make)).parameters:
            if parameter != "self":
                yield name, parameter


def function_of(name: str, make: Callable[..., Any]) -> Any:
    kind, _, method = name.rpartition(".")
    owner = {each.__name__: each for each in [*TYPES, tg.Table, Handle]}.get(kind)
    return make(application()) if owner is None else getattr(owner, method)


def arguments(function: Callable[..., Any], wrong_at: str, wrong: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a sound call, but for one."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [*VARIADIC[name], wrong] if name == wrong_at else VARIADIC[name]
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= FIELDS.get(function.__name__, {}) | ({"field": wrong} if name == wrong_at else {})
            continue
        more = MORE.get(function.__name__, {})
        if parameter.default is not parameter.empty and name not in {wrong_at, *more}:
            continue
        value = wrong if name == wrong_at else more[name] if name in more else sound(function, name)
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = value
        else:
            positional.append(value)
    return positional, named


def sound(method: Any, name: str) -> Any:
    return weather(method.__self__) if name == "table" else SOUND[name]


def weather(stream: tg.Stream | tg.WindowedStream) -> tg.Table:
    """A table of the stream's application, with windows in its keys if the stream has them."""
    windows = stream.definition.options.get("windows", "headers" if isinstance(stream, tg.WindowResults) else "none")
    options = {"kind": "table_history", "input": "weather", "history_retention": "1d", "windows": windows}
    table = Definition("weather", options)
    stream.definitions.add(table)
    return tg.Table(table, stream.definitions)


def use(app: tg.Application, value: Any) -> None:
    """Put what a function or method has returned into the program, and check that."""
    if isinstance(value, tg.Application):
        app = value
    elif isinstance(value, tg.Rekeyed):
        value.to("results", partitions=4)
    elif isinstance(value, tg.Stream | tg.WindowedStream | tg.Windowed):
        finish(value)
    else:
        define_with(app, value)
    app.to_yaml()
    assert repr(app) and app._repr_html_()


def finish(value: Any) -> None:
    if isinstance(value, tg.Windowed):
        value = value.count()
    value.keep()


def define_with(app: tg.Application, value: Any) -> None:
    match value:
        case windows.Window():
            stream(app).window(value).count().keep()
        case tg.Aggregate():
            windowed(app).aggregate(value).keep()
        case tg.Evictor():
            windowed(app).count(evictor=value).keep()
        case tg.Format():
            app.stream("departures", name="updates", key=value).suppress(tg.time_limit("1s")).keep()
        case formats.TimestampIn():
            app.stream("departures", name="updates", timestamp=value).suppress(tg.time_limit("1s")).keep()
        case formats.TimeWindowedKeys():
            app.windowed_stream("counts", name="updates", windows=value).suppress(tg.time_limit("1s")).keep()
        case limits.WindowClose() | limits.TimeLimit():
            windowed_stream(app).suppress(value).keep()
        case limits.EagerBound() | limits.StrictBound():
            stream(app).suppress(tg.time_limit("1s"), value).keep()


def refusal(name: str, parameter: str, wrong: Any) -> TidegateError | None:
    """What a call with the wrong value raises, or what checking the program then does; None: nothing."""
    app = application()
    function = PUBLIC[name](app)
    positional, named = arguments(function, parameter, wrong)
    try:
        use(app, function(*positional, **named))
    except TidegateError as error:
        return error
    return None


ALL = list(parameters())


@pytest.mark.parametrize(("name", "parameter"), ALL)
def test_a_value_that_nothing_takes_is_refused(name: str, parameter: str, waiting: Waiting) -> None:
    error = refusal(name, parameter, WRONG[0])
    assert error is not None, "it was taken"
    problems = error.problems if isinstance(error, ConfigurationError) else [error]
    assert all(problem.remedy and problem.value is not None for problem in problems), error
    assert all(problem.value is WRONG[0] or problem.value == "(hidden)" for problem in problems), error


@pytest.mark.parametrize(("name", "parameter"), ALL)
def test_no_value_raises_anything_but_an_error_of_the_project(name: str, parameter: str, waiting: Waiting) -> None:
    for wrong in WRONG[1:]:
        if name == "Handle.sql" and isinstance(wrong, str):
            continue  # text is a query, which Spark reads
        refusal(name, parameter, wrong)


def test_the_parameters_of_all_public_methods_are_tried() -> None:
    assert len(ALL) > 100
    assert {"Application.stream", "Stream.join", "Windowed.aggregate", "WindowedStream.to", "Handle.sql"} <= set(PUBLIC)
