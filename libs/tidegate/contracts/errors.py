"""Every error that Tidegate raises on purpose.

TidegateError
    |- UserError            the user can mend it: a configuration, a command, a missing topic   (exit code 2)
    |  `- ConfigurationError  every problem of a configuration at once
    |- BufferFull           a bound of `when_full: shut_down` was reached: raise it and start again
    |- StateError           what is stored contradicts itself or belongs to another: stop, name the file
    |  |- Fenced            a newer driver owns the operator: this one ends
    |  |- Superseded        a newer attempt owns a partition's local state: this task touches nothing
    |  |- InputTruncated    the input lost records after they were read: stop, until that is accepted
    |  |- Undecided         nothing tells whether the newest output was published: stop, until a person says
    |  `- OffsetsGone       the input lost records before they were read: stop, until the loss is accepted
    `- EngineError          Spark, Delta, Kafka or the disk failed; wraps its cause; the driver tries again a few times
       |- Unavailable       a broker or a disk is away or full: the driver waits for it, however long it takes
       |- StartOver         what a driver did is unclear: a new claim settles it
       |- Outdated          what a commit was to replace is no longer in the log: nothing was committed
       `- OutputTooLarge    a record that the output topic does not take

Bad *data* is never an exception: it becomes a row of kind `rejected` or `late` (see `contracts.schema`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TidegateError(Exception):
    """Says what is wrong (problem), with which value, and what to do about it (remedy)."""

    def __init__(self, problem: str, *, value: object = None, remedy: str = "") -> None:
        self.problem = problem
        self.value = value
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        lines = [self.problem]
        if self.value is not None:
            lines.append(f"  value:  {self.value}")
        if self.remedy:
            lines.append(f"  remedy: {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.problem, self.value, self.remedy)


def _rebuild(kind: type[TidegateError], problem: str, value: object, remedy: str) -> TidegateError:
    return kind(problem, value=value, remedy=remedy)


class UserError(TidegateError):
    """The user can mend it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with a configuration: where, which value, why, and what to write instead."""

    where: str
    value: object
    cause: str
    remedy: str

    @classmethod
    def of(cls, where: str, value: object, text: str) -> Problem:
        """Return the problem of a text "cause; remedy"."""
        cause, _, remedy = text.partition("; ")
        return cls(where=where, value=value, cause=cause, remedy=remedy)

    def __str__(self) -> str:
        return f"{self.where}: {self.cause}\n    value:  {self.value!r}\n    remedy: {self.remedy}"


class ConfigurationError(UserError):
    """All problems of a configuration, at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the configuration")

    def __str__(self) -> str:
        return "\n".join([f"{self.problem}:", *(f"  {problem}" for problem in self.problems)])

    def __reduce__(self) -> tuple[object, ...]:
        return ConfigurationError, (self.problems,)


class BufferFull(TidegateError):
    """A bound would be passed, so that the operator stops; everything before the offset is committed."""

    @classmethod
    def before(cls, place: str, operator: str, reason: str) -> BufferFull:
        """`operator` stopped at a place of its input; `reason` begins with the bound: `buffer.max_keys is reached`."""
        bound = reason.partition(" ")[0]
        way_out = ", or take another buffer.when_full" if bound.startswith("buffer.") else ""
        return cls(
            f"{operator} stopped before {place}",
            value=reason,
            remedy=f"raise {bound}{way_out}; it goes on there",
        )


class StateError(TidegateError):
    """What is stored contradicts itself; nothing goes on until a person has looked."""


class Fenced(StateError):
    """A newer driver has claimed the operator; this one stops."""


class Superseded(StateError):
    """A newer attempt owns a partition's local state; this task has touched nothing."""


class Undecided(StateError):
    """Nothing tells whether a partition's newest output was published."""


class InputTruncated(StateError):
    """The input no longer has records that were read, and may have others at their offsets."""


class OffsetsGone(StateError):
    """The input no longer has records that were not yet read."""


class EngineError(TidegateError):
    """Spark, Delta, Kafka or the disk failed."""


class Unavailable(EngineError):
    """A broker or a disk does not answer, or is full: it passes when that is mended, without a new start."""


class StartOver(EngineError):
    """What a driver did is unclear, or somebody else has committed: a new claim settles what has become of it."""


class Outdated(EngineError):
    """What a commit was to replace is no longer in the log: it was not committed, and never will be."""


class OutputTooLarge(EngineError):
    """An emission is larger than the output topic's `max.message.bytes`."""
