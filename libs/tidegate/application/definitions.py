"""What a program has defined: the options of each operator, and the places of the calls that set them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidegate.application.options import Fault, as_yaml, functions_in
from tidegate.application.places import Place
from tidegate.contracts.errors import Problem, UserError

lines = logging.getLogger("tidegate")


class Call(NamedTuple):
    """A call of the program: its place, the method, and the options that it set."""

    place: Place
    verb: str
    options: frozenset[str]

    def __str__(self) -> str:
        return f"{self.place} {self.verb}()"


@dataclass(frozen=True)
class Definition:
    """A named operator, or a stream without an operator yet: options as in YAML. Equal if the options are equal.

    `trusted`: modules of functions that the program has named. `problems`: mistakes in the calls themselves.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    trusted: frozenset[str] = frozenset()
    calls: tuple[Call, ...] = field(default=(), compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)

    def after(self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault] = ()) -> Definition:
        """Return the definition with further options, which a call has set; those that are None are left out."""
        given = {name: value for name, value in options.items() if value is not None}
        functions = [function for value in given.values() for function in functions_in(value)]
        faults = [*faults, *(function.fault for function in functions if function.fault is not None)]
        call = Call(place, verb, frozenset(given))
        found = [Problem(where=self._where(call), **vars(fault)) for fault in faults]
        return replace(
            self,
            options={**self.options, **{name: as_yaml(value) for name, value in given.items()}},
            trusted=self.trusted | {function.module for function in functions},
            calls=(*self.calls, call),
            problems=(*self.problems, *found),
        )

    def as_yaml(self) -> dict[str, Any]:
        """Return the operator as a YAML file has it: its kind first."""
        return {"kind": self.options["kind"], **self.options} if "kind" in self.options else dict(self.options)

    def placed(self, problem: Problem) -> Problem:
        """Return a problem of this operator's configuration with the file and line of the call that caused it."""
        if not self.calls:
            return problem
        option = problem.where.removeprefix(f"operators.{self.name}").removeprefix(".")
        callers = [call for call in self.calls if option.partition(".")[0] in call.options]
        call = callers[-1] if callers else self.calls[-1]
        return replace(problem, where=self._where(call, option))

    def _where(self, call: Call, option: str = "") -> str:
        return f"{call} of {self.name}" + (f", {option}" if option else "")


class Definitions:
    """The definitions of one application, by name, in the order of the program.

    A definition with the same name and content updates only the places, for instance when a notebook's cell runs again.
    One with different content replaces the earlier definition; while the application runs it is refused.
    """

    def __init__(self, operators: Iterable[Definition] = ()) -> None:
        self.is_running: Callable[[], bool] = lambda: False
        self._streams: dict[str, Definition] = {}
        self._operators: dict[str, Definition | None] = {each.name: each for each in operators}

    @property
    def operators(self) -> dict[str, Definition]:
        """Return the complete operators."""
        return {name: each for name, each in self._operators.items() if each is not None}

    @property
    def unfinished(self) -> list[Definition]:
        """Return the streams without an operator."""
        return [self._streams[name] for name, operator in self._operators.items() if operator is None]

    def begin(self, stream: Definition) -> None:
        """Register a stream. If it replaces a different stream of that name, drop that stream's operator."""
        if self._streams.get(stream.name) != stream:
            self._check_not_running(stream)
            self._note_replaced(stream)
            self._operators[stream.name] = None
        self._streams[stream.name] = stream

    def add(self, operator: Definition) -> None:
        """Register a complete operator."""
        if self._operators.get(operator.name) != operator:
            self._check_not_running(operator)
            self._note_replaced(operator)
        self._operators[operator.name] = operator

    def _check_not_running(self, new: Definition) -> None:
        if self.is_running():
            remedy = "stop() it first, or run the cell that creates the application again, too"
            raise UserError(f"{new.name} cannot change while the application runs", value=new.calls[-1], remedy=remedy)

    def _note_replaced(self, new: Definition) -> None:
        former = self._operators.get(new.name)
        if former is not None and former.calls:
            lines.warning("%s: %s replaces %s", new.name, new.calls[-1], former.calls[-1])
