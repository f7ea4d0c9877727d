"""How the steps of a pipeline hang together: which rows still are records of the input, and which are emissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tidegate.contracts.flow import Flow
from tidegate.operators.pipeline.steps import INPUT, Step, operators_of


class Shape:
    """The shape of a pipeline.

    `first_segment`: the steps whose rows still are the records of the input. Before them stand no operator, no merge
    and no `flat_map`, behind which a record may be there twice. `first_operators`: those that no other operator stands
    before; an idle advance advances them. `read`: the steps that another one reads. `emitting`: the steps whose results
    are emissions, because they are kept or no step reads them. `emits_flows`: some of these hold no state, so that the
    columns of the results of operators are emitted behind them.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._readers = {
            name: [step.name for step in steps if name in step.reads] for name in (INPUT, *(s.name for s in steps))
        }
        self._operators = operators_of(steps).keys()
        self._reads = {step.name: step.reads for step in steps}
        self.first_segment = _reached(
            [step for step in steps if len(step.reads) == 1], lambda step: not step.multiplies
        )
        self.first_operators = _reached(steps, lambda _: True) & self._operators
        self.read = frozenset(name for name, readers in self._readers.items() if readers)
        self.emitting = frozenset(step.name for step in steps if step.kept or not self._readers[step.name])
        self.emits_flows = bool(self.emitting - self._operators)

    def operators_before(self, name: str) -> frozenset[str]:
        """Return the names of the steps that hold state and stand before the step of that name."""
        read = [each for each in self._reads[name] if each != INPUT]
        before = [self.operators_before(each) | ({each} & self._operators) for each in read]
        return frozenset[str]().union(*before)

    def untaken(self, refused: Mapping[str, set[int]], flows: Mapping[str, Flow]) -> set[int]:
        """Return the refused records of the input that no branch takes: each branch refuses or drops them.

        `refused`: by step of the first segment the offsets of the records that it refused. `flows`: what has left each
        step.
        """
        every = set[int]().union(*refused.values())
        if not every:
            return every
        ended = {name: self._ended_at(name, refused, flows) for name in self.first_segment - {INPUT}}
        return every & self._ended_behind(INPUT, ended)

    def _ended_at(self, name: str, refused: Mapping[str, set[int]], flows: Mapping[str, Flow]) -> set[int]:
        """Return the records that a step of the first segment does not take, or does not pass on."""
        if name in self._operators:
            return refused.get(name, set())
        [read] = self._reads[name]
        before, behind = (flow.source[flow.is_record] for flow in (flows[read], flows[name]))
        return set(np.setdiff1d(before, behind).tolist())

    def _ended_behind(self, name: str, ended: Mapping[str, set[int]]) -> set[int]:
        """Return the records that end in every branch behind a stateless step, or behind the input."""
        readers = [] if name in self._operators else self._readers[name]
        by_reader = [
            ended[reader] | self._ended_behind(reader, ended) if reader in ended else set() for reader in readers
        ]
        return set[int].intersection(*by_reader) if by_reader else set()


def _reached(steps: Iterable[Step], passes: Callable[[Step], bool]) -> frozenset[str]:
    """Return the names of those of the steps that records reach through no operator, and through steps that pass."""
    found, passed_on = {INPUT}, {INPUT}
    for step in steps:
        if passed_on.issuperset(step.reads):
            found.add(step.name)
            passed_on |= {step.name} if step.operator is None and passes(step) else set()
    return frozenset(found)
