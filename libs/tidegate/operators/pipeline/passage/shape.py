"""How the steps of a pipeline hang together: which rows still are records of the input, and which are emissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.operators.pipeline.steps import INPUT, Step, operators_of


class Shape:
    """The shape of a pipeline.

    `first_segment`: the steps whose rows still are the records of the input: neither an operator nor a merge, behind
    which a record may be there twice, stands before them. `first_operators`: those that no other operator stands
    before; an idle advance advances them. `emitting`: the steps whose results are emissions, because they are kept or
    no step reads them.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._readers = {
            name: [step.name for step in steps if name in step.reads] for name in (INPUT, *(s.name for s in steps))
        }
        self._operators = operators_of(steps).keys()
        self.first_segment = _reached(step for step in steps if len(step.reads) == 1)
        self.first_operators = _reached(steps) & self._operators
        self.emitting = frozenset(step.name for step in steps if step.kept or not self._readers[step.name])

    def untaken(self, refused: Mapping[str, set[int]], step: str = INPUT) -> set[int]:
        """Return the records of the input that no branch behind a step takes, of those that it passes on.

        `refused`: by step of the first segment the offsets of the records that it refused.
        """
        readers = [] if step in self._operators else self._readers[step]
        by_reader = [
            refused.get(name, set()) | self.untaken(refused, name) if name in self.first_segment else set()
            for name in readers
        ]
        return set[int].intersection(*by_reader) if by_reader else set()


def _reached(steps: Iterable[Step]) -> frozenset[str]:
    """Return the names of the steps that records reach through no operator, and through these steps alone."""
    found, passed_on = {INPUT}, {INPUT}
    for step in steps:
        if passed_on.issuperset(step.reads):
            found.add(step.name)
            passed_on |= {step.name} if step.operator is None else set()
    return frozenset(found)
