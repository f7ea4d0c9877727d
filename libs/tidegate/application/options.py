"""The values that a program gives as options, in the form in which a YAML file has them. Pure functions.

Nothing is checked here but what YAML cannot say, such as a lambda: all else is checked by the operators' configuration
types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from tidegate.contracts.errors import InvalidValue, UserError
from tidegate.contracts.event_time import duration_text, parse_duration_ms
from tidegate.contracts.naming import function_problem

Duration: TypeAlias = str | timedelta | Literal[0]
"""A length of time: `30s`, `5m`, `2h`, `30d`, ISO 8601 such as `PT5M`, a timedelta, or 0."""

Size: TypeAlias = str | int
"""A number of bytes: `64MiB`, or a whole number."""

Function: TypeAlias = Callable[..., Any] | str
"""A function of a module that Spark's Python workers can import, or its name, `module:function`."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a value that YAML cannot express: the value, the cause and the remedy."""

    value: object
    cause: str
    remedy: str


@dataclass(frozen=True)
class Unusable:
    """Takes the place of a value that cannot be an option: the option is left out, and the fault is reported."""

    fault: Fault


@dataclass(frozen=True)
class FunctionName:
    """The name of a function, `module:function`, as an option."""

    name: str

    @property
    def module(self) -> str:
        """Return the module's name."""
        return self.name.partition(":")[0]


def option_of(value: Any, types: type | tuple[type, ...], make: Callable[[Any], Any], remedy: str) -> Any:
    """Return the option that `make` makes of the value, if it is of these types; otherwise Unusable."""
    return make(value) if isinstance(value, types) else Unusable(Fault(value, _wrong_type(value), remedy))


def optional(value: Any, types: type | tuple[type, ...], make: Callable[[Any], Any], remedy: str) -> Any:
    """Return None of None, which leaves the option out, and otherwise as `option_of`."""
    return None if value is None else option_of(value, types, make, remedy)


def _wrong_type(value: object) -> str:
    return (
        "None is not allowed here" if value is None else f"a value of type {type(value).__name__} is not allowed here"
    )


def function_name(function: Function | None) -> FunctionName | Unusable | None:
    """Return the name under which Spark's Python workers import the function; None of None."""
    if function is None:
        return None
    if isinstance(function, str):
        problem = function_problem(function)
        return Unusable(Fault(function, problem.cause, problem.remedy)) if problem else FunctionName(function)
    if not callable(function):
        return Unusable(Fault(function, _wrong_type(function), "pass a function, or its name as text: module:function"))
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is not None and str(module).startswith(f"{__package__}."):
        return Unusable(Fault(f"tg.{name}", "the function is not called", f"write tg.{name}()"))
    if module not in (None, "__main__", PROGRAM) and name is not None and name.isidentifier():
        return FunctionName(f"{module}:{name}")
    cause = "Spark's Python workers cannot import it"
    remedy = "define it with `def` at the top level of a module of its own, and import it from there"
    return Unusable(Fault(function, cause, remedy))


PROGRAM = "__tidegate_program__"
"""Name of a program's module while a command loads it. Workers cannot import that name, just as `__main__`."""


def as_yaml(value: Any) -> Any:
    """Return the value as YAML has it: durations as text, mappings without the entries that are left out."""
    if isinstance(value, Unusable):
        return None
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, FunctionName):
        return value.name
    if isinstance(value, dict):
        entries = {name: as_yaml(entry) for name, entry in value.items()}
        return {name: entry for name, entry in entries.items() if entry is not None}
    return value


def faults_in(value: Any) -> list[Fault]:
    """Return what is wrong with the option's value, at any depth: it must consist of what YAML can express."""
    if isinstance(value, Unusable):
        return [value.fault]
    if isinstance(value, dict | list | tuple):
        entries = value.values() if isinstance(value, dict) else value
        return [fault for entry in entries for fault in faults_in(entry)]
    if value is None or isinstance(value, str | int | float | timedelta | FunctionName):
        return []
    return [Fault(value, _wrong_type(value), "write text, a number or a timedelta")]


def duration_ms(duration: Duration) -> int:
    """Return the milliseconds of the duration. Raise UserError if it is none."""
    try:
        return parse_duration_ms(str(as_yaml(duration)))
    except InvalidValue as error:
        raise UserError(error.cause, value=duration, remedy=error.remedy) from None


def field_option(field: Any) -> dict[str, Any]:
    """Return the option that names a field: by its path if the text has dots."""
    return {"path" if isinstance(field, str) and "." in field else "field": field}


def functions_in(value: Any) -> list[FunctionName]:
    """Return the functions that the option names, at any depth."""
    if isinstance(value, FunctionName):
        return [value]
    entries = value.values() if isinstance(value, dict) else ()
    return [function for entry in entries for function in functions_in(entry)]
