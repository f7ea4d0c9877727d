"""Joins the chains of a program that grow from one stream to one operator, and keeps what the program has defined."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from tidegate.application.definitions.definition import INPUT, Call, Definition
from tidegate.application.options import Fault
from tidegate.contracts.errors import Problem, UserError

lines = logging.getLogger("tidegate")


def merged(one: Definition, other: Definition) -> Definition:
    """Return the pipeline of both chains, whose next step reads the ends of both, merged."""
    first = one.as_pipeline()
    second = other.as_pipeline()
    both, places = _with_steps_of(first, second)
    return replace(both, ends=(*first.reads_next, *(places[at] for at in second.reads_next)))


def unread(chain: Definition, verb: str) -> list[Fault]:
    """Return what is wrong if a chain that stays in the lake ends with a merge; the verb is that of its last call."""
    remedy = "add a step behind .merge(), or write .to(TOPIC)"
    return [] if chain.ends is None else [Fault(f".{verb}()", "no step reads the merged rows", remedy)]


def _whole(chains: tuple[Definition, ...]) -> Definition:
    """Return the operator of all chains: the only one, or a pipeline with an output for each."""
    if len(chains) == 1 and chains[0].ends is None:
        return chains[0]
    whole = reduce(lambda one, other: _with_steps_of(one, other)[0], map(_ended, chains))
    read = {at for reads in whole.links for at in reads}
    steps = [_without_keep(step) if at not in read else step for at, step in enumerate(whole.steps)]
    return replace(whole, options={**whole.options, "steps": steps})


def _without_keep(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the step, which no other reads, so that its results are kept in any case."""
    return {option: value for option, value in step.items() if option != "keep"}


def _ended(chain: Definition) -> Definition:
    """Return the chain as a pipeline whose last step is what writes its results; without a topic, these are kept."""
    chain = chain.as_pipeline()
    topic, windows, partitions = (chain.options.get(option) for option in _SINK)
    left = replace(chain, options={name: each for name, each in chain.options.items() if name not in _SINK})
    if "output" not in chain.options and "output" not in chain.unusable:
        if not left.steps:
            return replace(left, problems=(*left.problems, left.kept_beside_others()))
        return left if left.ends is not None else _with_option(left, len(left.steps) - 1, "keep", True)
    at = len(left.steps)
    calls = tuple(call._replace(options=_of_sink(call.options, at)) for call in left.calls)
    sink = {"to": topic, **({} if windows is None else {"key": "kafka_windows"})}
    sink |= {} if partitions is None else {"partitions": partitions}
    return replace(
        left,
        options={**left.options, "steps": [*left.steps, sink]},
        links=(*left.links, left.reads_next),
        calls=calls,
        unusable=_of_sink(left.unusable, at),
    )


_SINK = {"output": "to", "output_windows": "key", "output_partitions": "partitions"}
"""Options of an operator with one output, and those of the step that writes a topic."""


def _of_sink(options: frozenset[str], at: int) -> frozenset[str]:
    """Return the options where those of an output are those of the step at a place."""
    own = {f"steps.{at}.{name}" for option, name in _SINK.items() if option in options}
    return frozenset((options - _SINK.keys()) | own | ({f"steps.{at}"} if "output" in options else set()))


def _with_option(chain: Definition, at: int, option: str, value: Any) -> Definition:
    steps = [*chain.steps]
    steps[at] = {**steps[at], option: value}
    return replace(chain, options={**chain.options, "steps": steps})


def _with_steps_of(base: Definition, other: Definition) -> tuple[Definition, dict[int, int]]:
    """Return the pipeline with the steps of another one that it lacks, and where each of these is in it."""
    places = {INPUT: INPUT}
    for at, step in enumerate(other.steps):
        reads = tuple(places[each] for each in other.links[at])
        found = next((each for each in range(len(base.steps)) if _is_same(base, each, other, at, reads)), None)
        if found is None:
            found = len(base.steps)
            base = _with_step(base, other, at, reads)
        elif step.get("keep"):
            base = _with_option(base, found, "keep", True)
        places[at] = found
    problems = (*base.problems, *(each for each in other.problems if each not in base.problems))
    return replace(base, problems=problems, trusted=base.trusted | other.trusted, ends=None), places


def _is_same(base: Definition, here: int, other: Definition, there: int, reads: tuple[int, ...]) -> bool:
    """Return whether both pipelines have the step: the same calls have defined it, and it reads the same."""
    one, two = ({**each.steps[at], "keep": None} for each, at in ((base, here), (other, there)))
    return (base.links[here], one, base.calls_of(here)) == (reads, two, other.calls_of(there))


def _with_step(base: Definition, other: Definition, at: int, reads: tuple[int, ...]) -> Definition:
    """Return the pipeline with a step of another one, and with the calls that have defined that step."""
    before, now = f"steps.{at}", f"steps.{len(base.steps)}"
    calls = [
        Call(call.place, call.verb, _moved(call.options, before, now))
        for call in other.calls
        if _moved(call.options, before, now)
    ]
    return replace(
        base,
        options={**base.options, "steps": [*base.steps, other.steps[at]]},
        links=(*base.links, reads),
        calls=(*base.calls, *calls),
        unusable=base.unusable | _moved(other.unusable, before, now),
    )


def _moved(options: Iterable[str], before: str, now: str) -> frozenset[str]:
    """Return those of the options that belong to the step at one place, as they are called at another one."""
    own = (option for option in options if f"{option}.".startswith(f"{before}."))
    return frozenset(now + option.removeprefix(before) for option in own)


class _Entry(NamedTuple):
    """A stream, and the chains that grow from it; without a stream for a table, without chains for no operator yet."""

    stream: Definition | None
    chains: tuple[Definition, ...]

    @property
    def operator(self) -> Definition | None:
        """Return the operator of all chains; None if there is none yet."""
        return _whole(self.chains) if self.chains else None

    @property
    def newest(self) -> Definition:
        """Return the operator, or the stream while it has none."""
        newest = self.operator or self.stream
        assert newest is not None
        return newest

    def is_of(self, run: object) -> bool:
        """Return whether the run has defined the stream or a chain."""
        return any(each is not None and each.run == run for each in (self.stream, *self.chains))

    def with_chain(self, chain: Definition) -> _Entry:
        """Return the entry with a further chain, in place of an equal one, and of those that it replaces."""
        kept = [chain if each == chain else each for each in self.chains if each == chain or not _replaces(chain, each)]
        return _Entry(self.stream, tuple(kept if chain in kept else [*kept, chain]))


def _replaces(chain: Definition, former: Definition) -> bool:
    """Return whether a chain is written anew in place of one of an earlier run: with its output, or its stream anew."""
    same_output = chain.options.get("output") == former.options.get("output")
    return chain.run != former.run and (same_output or chain.calls[:1] != former.calls[:1])


class Definitions:
    """The definitions of one application, by name, in the order of the program.

    A definition with the same name and content updates only the places, for instance when a notebook's cell runs again.
    One with different content replaces what earlier runs of cells have defined; beside another one of the same run it
    is a problem. While the application runs it is refused.
    """

    def __init__(self, operators: Iterable[Definition] = ()) -> None:
        self.is_running: Callable[[], bool] = lambda: False
        self._entries: dict[str, list[_Entry]] = {each.name: [_Entry(None, (each,))] for each in operators}

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

    a_table = "pass a table: app.table(TOPIC, history=...)"
    """What to write if a join is given something else than a table."""

    def joined(self, table: Definition, source: Definitions) -> Any:
        """Return the option of a join that names its table. `source`: what the table was defined in."""
        return table.name

    def start(self, definition: Definition, name: str, options: Mapping[str, Any]) -> Any:
        """Raise UserError: operators between topics are registered, and start together."""
        remedy = "write .to(TOPIC) or .keep() here, then app.start() or app.run()"
        raise UserError("the operators of an application start together", value=definition.calls[-1], remedy=remedy)

    def begin(self, stream: Definition) -> None:
        """Register a stream. If it replaces a different stream of that name, drop that stream's operator."""
        same = next((each for each in self._named(stream) if each.stream == stream), None)
        if same is None:
            self._check_not_running(stream)
        self._put(_Entry(stream, () if same is None else same.chains), same, stream)

    def add(self, chain: Definition) -> None:
        """Register a complete operator, or a chain that is an operator together with others of its stream."""
        entries = self._named(chain)
        same = next((each for each in entries if chain in each.chains), None)
        if same is None:
            self._check_not_running(chain)
            same = next((each for each in entries if _may_get(each, chain)), None)
        self._put((same or _Entry(None, ())).with_chain(chain), same, chain)

    def _named(self, definition: Definition) -> list[_Entry]:
        return self._entries.get(definition.name, [])

    def _put(self, entry: _Entry, former: _Entry | None, new: Definition) -> None:
        """Put the entry in place of the former one, or behind those of the same run; drop those of earlier runs."""
        before = self._named(new)
        kept = [entry if each is former else each for each in before if each is former or each.is_of(new.run)]
        self._entries[new.name] = kept if former is not None else [*kept, entry]
        self._note_replaced(before, entry)

    def _note_replaced(self, before: list[_Entry], entry: _Entry) -> None:
        """Log that the entry has replaced chains."""
        kept = [chain for each in self._entries[entry.newest.name] for chain in each.chains]
        for chain in (chain for each in before for chain in each.chains):
            if chain.calls and chain not in kept:
                lines.warning("%s: %s replaces %s", chain.name, entry.newest.calls[-1], chain.calls[-1])

    def _check_not_running(self, new: Definition) -> None:
        if self.is_running():
            remedy = "stop() it first, or run the cell that creates the application again, too"
            raise UserError(f"{new.name} cannot change while the application runs", value=new.calls[-1], remedy=remedy)


def _may_get(entry: _Entry, chain: Definition) -> bool:
    """Return whether the chain grows from the entry's stream, as all of its chains of this run do."""
    of_run = (each for each in entry.chains if each.run == chain.run)
    return chain.grows_from(entry.stream) and all(each.grows_from(entry.stream) for each in of_run)
