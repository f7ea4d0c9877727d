"""What a program has defined: the options of each operator, and the places of the calls that set them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidegate.application.options import Fault, Unusable, as_yaml, faults_in, functions_in
from tidegate.application.places import Place
from tidegate.contracts.errors import Problem, UserError
from tidegate.contracts.naming import NAME_FORM

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
    `unusable`: the options that are left out because of them.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    trusted: frozenset[str] = frozenset()
    calls: tuple[Call, ...] = field(default=(), compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    unusable: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def begun(cls, name: Any, verb: str, place: Place, options: Mapping[str, Any]) -> Definition:
        """Return the definition that a program begins with a call. An unusable name becomes one of its problems."""
        if isinstance(name, str):
            return cls(name).after(verb, place, options)
        fault = (
            name.fault
            if isinstance(name, Unusable)
            else Fault(name, "the name is not text", f"write name=..., with {NAME_FORM}")
        )
        shown = fault.value if isinstance(fault.value, str) else repr(fault.value)
        return cls(shown, unusable=frozenset({""})).after(verb, place, options, [fault])

    def after(self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault] = ()) -> Definition:
        """Return the definition with further options, which a call has set; those that are None are left out."""
        given = {name: value for name, value in options.items() if value is not None}
        found = [("", fault) for fault in faults]
        found += [(name, fault) for name, value in given.items() for fault in faults_in(value)]
        call = Call(place, verb, frozenset(given))
        functions = [function for value in given.values() for function in functions_in(value)]
        return replace(
            self,
            options={**self.options, **as_yaml(given)},
            trusted=self.trusted | {function.module for function in functions},
            calls=(*self.calls, call),
            problems=(
                *self.problems,
                *(Problem(where=self._where(call, name), **vars(fault)) for name, fault in found),
            ),
            unusable=self.unusable | {name for name, _ in found if name},
        )

    @property
    def run(self) -> object:
        """Return the run of the program, or of the notebook's cell, that has made the newest call."""
        return self.calls[-1].place.run if self.calls else None

    def grows_from(self, stream: Definition | None) -> bool:
        """Return whether this is an operator of the stream."""
        return stream is not None and self.calls[: len(stream.calls)] == stream.calls

    def as_yaml(self) -> dict[str, Any]:
        """Return the operator as a YAML file has it: its kind first."""
        return {"kind": self.options["kind"], **self.options} if "kind" in self.options else dict(self.options)

    def placed(self, problem: Problem) -> Problem | None:
        """Return a problem of this operator's configuration with the file and line of the call that caused it.

        None if it only follows from a value that could not be used, which is a problem of its own.
        """
        if not self.calls:
            return problem
        option = problem.where.removeprefix(f"operators.{self.name}").removeprefix(".")
        head = option.partition(".")[0]
        if head in self.unusable or (not head and self.unusable & {"", "kind"}):
            return None
        return replace(problem, where=self._where(self._cause_of(head), option))

    def _cause_of(self, option: str) -> Call:
        """Return the call that set the option; for an option that is missing, the call that began the operator."""
        if not option:  # the name is refused
            return self.calls[0]
        named = option if option in self.options else "kind"
        return next((call for call in reversed(self.calls) if named in call.options), self.calls[-1])

    def without_output(self) -> Problem:
        """Return the problem that this stream has no output."""
        return Problem(
            where=self._where(self.calls[-1]),
            value=self.name,
            cause="the stream has no output",
            remedy="call a method such as .suppress(...), then .to(TOPIC) or .keep()",
        )

    def defined_twice(self, before: Definition) -> Problem:
        """Return the problem that a different operator or stream of this name was defined before."""
        return Problem(
            where=self._where(self.calls[-1]),
            value=self.name,
            cause=f"{before.calls[-1]} has defined another operator of that name",
            remedy="give each operator its own name, and call .to(TOPIC) or .keep() once for each",
        )

    def _where(self, call: Call, option: str = "") -> str:
        return f"{call} of {self.name}" + (f", {option}" if option else "")


class _Entry(NamedTuple):
    """A stream, and the operator that it has been given; None for a table's stream, and for no operator yet."""

    stream: Definition | None
    operator: Definition | None

    @property
    def newest(self) -> Definition:
        """Return the operator, or the stream while it has none."""
        newest = self.operator or self.stream
        assert newest is not None
        return newest

    def is_of(self, run: object) -> bool:
        """Return whether the run has defined the stream or the operator."""
        return any(each is not None and each.run == run for each in self)


class Definitions:
    """The definitions of one application, by name, in the order of the program.

    A definition with the same name and content updates only the places, for instance when a notebook's cell runs again.
    One with different content replaces what earlier runs of cells have defined; beside another one of the same run it
    is a problem. While the application runs it is refused.
    """

    def __init__(self, operators: Iterable[Definition] = ()) -> None:
        self.is_running: Callable[[], bool] = lambda: False
        self._entries: dict[str, list[_Entry]] = {each.name: [_Entry(None, each)] for each in operators}

    @property
    def operators(self) -> dict[str, Definition]:
        """Return the complete operators; of several with the same name the first."""
        first = {name: entries[0].operator for name, entries in self._entries.items()}
        return {name: operator for name, operator in first.items() if operator is not None}

    def problems(self) -> Iterator[Problem]:
        """Yield the mistakes in the calls, streams without an operator, and names that are defined twice."""
        for first, *others in self._entries.values():
            yield from first.newest.problems
            if first.operator is None:
                yield first.newest.without_output()
            yield from (other.newest.defined_twice(first.newest) for other in others)

    def begin(self, stream: Definition) -> None:
        """Register a stream. If it replaces a different stream of that name, drop that stream's operator."""
        same = next((each for each in self._named(stream) if each.stream == stream), None)
        if same is None:
            self._check_not_running(stream)
        self._put(_Entry(stream, None if same is None else same.operator), same, stream)

    def add(self, operator: Definition) -> None:
        """Register a complete operator."""
        entries = self._named(operator)
        same = next((each for each in entries if each.operator == operator), None)
        if same is None:
            self._check_not_running(operator)
            same = next((each for each in entries if _may_get(each, operator)), None)
        self._put(_Entry(None if same is None else same.stream, operator), same, operator)

    def _named(self, definition: Definition) -> list[_Entry]:
        return self._entries.get(definition.name, [])

    def _put(self, entry: _Entry, former: _Entry | None, new: Definition) -> None:
        """Put the entry in place of the former one, or behind those of the same run; drop those of earlier runs."""
        before = self._named(new)
        kept = [entry if each is former else each for each in before if each is former or each.is_of(new.run)]
        self._entries[new.name] = kept if former is not None else [*kept, entry]
        self._note_replaced(before, entry)

    def _note_replaced(self, before: list[_Entry], entry: _Entry) -> None:
        """Log that the entry has replaced an operator."""
        kept = [each.operator for each in self._entries[entry.newest.name]]
        for operator in (each.operator for each in before):
            if operator is not None and operator.calls and operator not in kept:
                lines.warning("%s: %s replaces %s", operator.name, entry.newest.calls[-1], operator.calls[-1])

    def _check_not_running(self, new: Definition) -> None:
        if self.is_running():
            remedy = "stop() it first, or run the cell that creates the application again, too"
            raise UserError(f"{new.name} cannot change while the application runs", value=new.calls[-1], remedy=remedy)


def _may_get(entry: _Entry, operator: Definition) -> bool:
    """Return whether the operator is that of the entry's stream, which has none yet or one of an earlier run."""
    has_own = entry.operator is not None and entry.operator.run == operator.run
    return operator.grows_from(entry.stream) and not has_own
