"""The values that a program gives as options, in the form in which a YAML file has them. Pure functions.

Nothing is checked here but what YAML cannot say, such as a lambda: all else is checked by the operators' configuration
types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import duration_text, parse_duration_ms

Duration: TypeAlias = str | timedelta | Literal[0]
"""A length of time: `30s`, `5m`, `2h`, `30d`, ISO 8601 such as `PT5M`, a timedelta, or 0."""

Size: TypeAlias = str | int
"""A number of bytes: `64MiB`, or a whole number."""

Function: TypeAlias = Callable[..., Any] | str
"""A function of a module that Spark's Python workers can import, or its name, `module:function`."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a value that YAML cannot express: the value, the cause and the remedy."""

    value: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class FunctionName:
    """The name of a function, `module:function`, as an option; `fault`: why it has no such name."""

    name: str
    fault: Fault | None = None

    @property
    def module(self) -> str:
        """Return the module's name."""
        return self.name.partition(":")[0]


def function_name(function: Function) -> FunctionName:
    """Return the name under which Spark's Python workers import the function."""
    if isinstance(function, str):
        return FunctionName(function)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is not None and str(module).startswith(f"{__package__}."):
        return FunctionName("unknown:function", Fault(f"tg.{name}", "the function is not called", f"write tg.{name}()"))
    if module not in (None, "__main__", PROGRAM) and name is not None and name.isidentifier():
        return FunctionName(f"{module}:{name}")
    cause = "Spark's Python workers cannot import it"
    remedy = "define it with `def` at the top level of a module of its own, and import it from there"
    return FunctionName("unknown:function", Fault(repr(function), cause, remedy))


PROGRAM = "__tidegate_program__"
"""Name of a program's module while a command loads it. Workers cannot import that name, just as `__main__`."""


def as_yaml(value: Any) -> Any:
    """Return the value as YAML has it: durations as text, mappings without the entries that are left out."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, FunctionName):
        return value.name
    if isinstance(value, dict):
        return {name: as_yaml(entry) for name, entry in value.items() if entry is not None}
    return value


def duration_ms(duration: Duration) -> int:
    """Return the milliseconds of the duration. Raise UserError if it is none."""
    try:
        return parse_duration_ms(str(as_yaml(duration)))
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise UserError(problem, value=duration, remedy=remedy) from None


def functions_in(value: Any) -> list[FunctionName]:
    """Return the functions that the option names, at any depth."""
    if isinstance(value, FunctionName):
        return [value]
    entries = value.values() if isinstance(value, dict) else ()
    return [function for entry in entries for function in functions_in(entry)]
