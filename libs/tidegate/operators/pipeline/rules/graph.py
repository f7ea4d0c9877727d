"""The graph of a pipeline: which step reads which, and which of their results are in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from tidegate.operators.pipeline.rules.steps import Evaluated, FlatMap, Sink, Stateful, Stateless, StepRules
from tidegate.operators.pipeline.steps import INPUT

INPUT_AT = -1
"""Stands for the input where steps are named by their places."""


Origins: TypeAlias = str | tuple[Any, ...]
"""From where rows come: a step that holds state, or the input, by name; in a tuple several, which are merged."""


class Wire(NamedTuple):
    """What comes to a step that holds state. `of_input`: rows with the offsets of the input; others are numbered."""

    origins: Origins
    of_input: bool


class Node(NamedTuple):
    """What is done at once: one operator, a run of stateless steps, or, without steps, the merge of those it reads.

    `at`: the place of its first step. `reads`: the names of the nodes before it. `kept`: whether its results are in the
    log. A run is named after its last step, or has the number of its first one; `+` joins the names of a merge. So no
    two nodes have the same name: names of steps have letters, digits and _ alone, and begin with a letter.
    """

    name: str
    at: int
    reads: tuple[str, ...]
    steps: tuple[Stateful | Stateless, ...]
    kept: bool


class Written(NamedTuple):
    """A topic, by the step that names it, and what is written there; `at`: the place whose rows these are."""

    sink: Sink
    node: str
    at: int


class Graph:
    """The graph of these steps, which have been checked."""

    def __init__(self, steps: Sequence[StepRules]) -> None:
        self._steps = steps
        self._names = {step.name: at for at, step in enumerate(steps) if not isinstance(step, Sink) and step.name}
        self._reads: list[tuple[int, ...]] = []
        for at, step in enumerate(steps):
            self._reads.append(self._named(step.sources) or self._behind(at))
        self._runs = list(self._runs_of_steps())
        self._node_of = {at: self._name_of(run) for run in self._runs for at in run} | {INPUT_AT: INPUT}

    def nodes(self) -> list[Node]:
        """Return the nodes, each behind those that it reads."""
        found: dict[str, Node] = {}
        for reads in (*self._reads, self._behind(len(self._steps))):
            if len(reads) > 1:
                name, kept = self._node(reads), self._is_kept(reads)
                found[name] = Node(name, max(reads) + 1, self._nodes(reads), (), kept)
        for run in self._runs:
            first, last = run[0], run[-1]
            kept = self._is_kept((last,))
            name, before = self._node_of[last], (self._node(self._reads[first]),)
            found[name] = Node(name, first, before, tuple(self._done(run)), kept)
        return sorted(found.values(), key=lambda node: (node.at, bool(node.steps)))

    def written(self) -> list[Written]:
        """Return the topics that steps name, in their order."""
        return [
            Written(step, self._node(self._reads[at]), at)
            for at, step in enumerate(self._steps)
            if isinstance(step, Sink)
        ]

    def wires(self) -> dict[str, Wire]:
        """Return what comes to each step that holds state, by name, in the order of the steps.

        The stateless steps between them do not matter, but for `flat_map`, behind which rows are numbered.
        """
        stateful = ((step.name, self._reads[at]) for at, step in enumerate(self._steps) if isinstance(step, Stateful))
        return {name: Wire(self._origins(reads), self._has_offsets(reads)) for name, reads in stateful}

    def _origins(self, reads: tuple[int, ...]) -> Origins:
        if len(reads) > 1:
            return tuple(self._origins((at,)) for at in reads)
        step = self._at(reads)
        if step is None or isinstance(step, Stateful):
            return INPUT if step is None else step.name
        return self._origins(self._reads[reads[0]])

    def _has_offsets(self, reads: tuple[int, ...]) -> bool:
        """Return whether what stands there still has the offsets of the input."""
        step = self._at(reads)
        if len(reads) > 1 or isinstance(step, Stateful | FlatMap):
            return False
        return step is None or self._has_offsets(self._reads[reads[0]])

    def _at(self, reads: tuple[int, ...]) -> StepRules | None:
        """Return the first of the steps that are read; None for the input."""
        return None if reads[0] == INPUT_AT else self._steps[reads[0]]

    def untaken(self) -> dict[str, int]:
        """Return the nodes, or INPUT, with results in the log that are records which no step with state has taken.

        Of each, the place of the step, or of the first of those that are merged; INPUT_AT for the input.
        """
        ends = dict.fromkeys([*self._reads, self._behind(len(self._steps)), *((run[-1],) for run in self._runs)])
        return {self._node(end): end[0] for end in ends if self._is_kept(end) and not self._stateful_among(end)}

    def _stateful_among(self, reads: tuple[int, ...]) -> set[str]:
        """Return the names of those of these steps, and of the steps before them, that hold state."""
        before, found = list(reads), set[str]()
        while before:
            at = before.pop()
            step = None if at == INPUT_AT else self._steps[at]
            found |= {step.name} if isinstance(step, Stateful) else set()
            before += [] if at == INPUT_AT else self._reads[at]
        return found

    def last(self) -> str:
        """Return the name of the node that a step behind the last one would read."""
        return self._node(self._behind(len(self._steps)))

    def _named(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(INPUT_AT if name == INPUT else self._names[name] for name in names)

    def _behind(self, at: int) -> tuple[int, ...]:
        """Return what a step at that place reads by default: the step before it, or what that writes to a topic."""
        if at == 0:
            return (INPUT_AT,)
        return self._reads[at - 1] if isinstance(self._steps[at - 1], Sink) else (at - 1,)

    def _readers(self, wanted: tuple[int, ...]) -> list[int]:
        """Return the places of the steps that read a step, or exactly this merge of several."""
        if len(wanted) > 1:
            return [at for at, reads in enumerate(self._reads) if reads == wanted]
        return [at for at, reads in enumerate(self._reads) if wanted[0] in reads]

    def _is_kept(self, reads: tuple[int, ...]) -> bool:
        readers = self._readers(reads)
        step = None if len(reads) > 1 or reads[0] == INPUT_AT else self._steps[reads[0]]
        asked = step is not None and not isinstance(step, Sink) and step.keep
        written = any(isinstance(self._steps[at], Sink) and self._reads[at] == reads for at in readers)
        return asked or written or not readers

    def _runs_of_steps(self) -> Iterator[list[int]]:
        run: list[int] = []
        for at, step in enumerate(self._steps):
            if isinstance(step, Sink):
                continue
            if run and not self._continues(run[-1], at):
                yield run
                run = []
            run.append(at)
        if run:
            yield run

    def _continues(self, before: int, at: int) -> bool:
        """Return whether a step is done at once with the one before it: nobody else needs what stands between them."""
        evaluated = all(isinstance(self._steps[each], Evaluated) for each in (before, at))
        needed = self._readers((before,)) != [at] or self._is_kept((before,)) or before in self._names.values()
        return evaluated and self._reads[at] == (before,) and not needed

    def _name_of(self, run: Sequence[int]) -> str:
        last = self._steps[run[-1]]
        return (None if isinstance(last, Sink) else last.name) or str(run[0] + 1)

    def _nodes(self, reads: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self._node_of[at] for at in reads)

    def _node(self, reads: tuple[int, ...]) -> str:
        return "+".join(self._nodes(reads))

    def _done(self, run: Sequence[int]) -> Iterator[Stateful | Stateless]:
        for at in run:
            step = self._steps[at]
            if not isinstance(step, Sink):
                yield step
