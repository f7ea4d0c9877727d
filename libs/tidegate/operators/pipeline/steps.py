"""The steps of a pipeline, and the checks that they fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.contracts.errors import UserError
from tidegate.contracts.flow import Stateless, UserStep
from tidegate.contracts.operator import Operator

INPUT = "input"
"""The name under which steps read the records of the pipeline's input."""


class OwnTable(NamedTuple):
    """The table that a join looks up in: a step of the same pipeline, by its name. `grace`: that of the join, ms."""

    step: str
    grace: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a pipeline: an operator, which holds state, or a function of flows, which holds none.

    `reads`: the names of the steps whose flow it takes; an operator takes one. `hold`: how far the time marks that an
    operator passes on stay behind its stream time; None: it passes none on. `passes_time`: False if the steps behind it
    see its records alone, as in Kafka Streams (`time: records`). `kept`: its results are emissions of the pipeline,
    although other steps read them. `multiplies`: a record may become several, which then need arrival numbers. `table`:
    of a join with a table of the same pipeline, that table. `passes_on`: of a step that makes results of what another
    one does, and of no interest by itself, the name of that step.
    """

    name: str
    does: Operator | Stateless
    reads: tuple[str, ...]
    hold: int | None = None
    passes_time: bool = True
    kept: bool = False
    multiplies: bool = False
    table: OwnTable | None = None
    passes_on: str | None = None

    @property
    def shown(self) -> str:
        """Return the name of the step in the rows of its results, and in late and rejected rows."""
        return self.name if self.passes_on is None else self.passes_on

    @property
    def operator(self) -> Operator | None:
        """Return the step's operator; None if the step is stateless."""
        return None if callable(self.does) else self.does

    @property
    def function(self) -> Stateless | None:
        """Return the step's function; None if the step holds state."""
        return self.does if callable(self.does) else None

    def load(self) -> None:
        """Load the function of the user's own that the step calls, if any. Raise UserError if it cannot be loaded."""
        if self.operator is None and isinstance(self.does, UserStep):
            self.does.load()


def chained(*steps: Step) -> tuple[Step, ...]:
    """Return the steps if each reads only what is before it. Raise UserError if they do not fit together."""
    known = {INPUT}
    for step in steps:
        if step.name in known or "." in step.name:
            raise UserError("a step needs a name of its own, without a dot", value=step.name, remedy="rename the step")
        if missing := [name for name in step.reads if name not in known]:
            raise UserError(
                f"step {step.name} reads a step that is not before it", value=missing[0], remedy="reorder the steps"
            )
        if step.operator is not None and len(step.reads) != 1:
            raise UserError(
                f"step {step.name} reads several steps",
                value=", ".join(step.reads),
                remedy="merge them in a step before it",
            )
        known.add(step.name)
    return steps


def operators_of(steps: Sequence[Step]) -> Mapping[str, Operator]:
    """Return the operators of the steps that hold state, by name."""
    return {step.name: step.operator for step in steps if step.operator is not None}
