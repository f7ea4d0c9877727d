"""The errors that Tidegate raises on purpose.

TidegateError
    |- UserError            the user can fix it: a configuration, a command, a missing topic   (exit code 2)
    |  |- ConfigurationError  all problems of a configuration at once
    |  `- MissingExtra        a library is not installed: install the extra that brings it (`contracts.extras`)
    |- BufferFull           a limit was reached under `when_full: shut_down`: raise it and start again
    |- StateError           stored data contradicts itself or belongs to another operator or log: stop, name the file
    |  |- Fenced            a newer driver owns the operator: this one stops
    |  |- Superseded        a newer attempt owns a partition's local state: this task changes nothing
    |  |- InputTruncated    the input lost records that were already read: stop until the loss is accepted
    |  |- Undecided         it is unknown whether the newest output was published: stop until a person decides
    |  `- OffsetsGone       the input lost records that were not yet read: stop until the loss is accepted
    `- EngineError          Spark, Delta, Kafka or the disk failed; wraps its cause; the driver retries a few times
       |- Unavailable       a broker or a disk is down or full: the driver waits for it, however long it takes
       |- StartOver         the outcome of an action of the driver is unknown: a new claim resolves it
       |- Outdated          files that a commit should replace are no longer in the log: nothing was committed
       `- OutputTooLarge    a record is larger than the output topic accepts

Bad *data* never raises: it becomes a row of kind `rejected` or `late` (see `contracts.log_schema`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TidegateError(Exception):
    """Base class of all errors: what is wrong (problem), with which value, and what to do about it (remedy)."""

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
    """An error that the user can fix."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem in a configuration: where it is, which value, why, and what to write instead."""

    where: str
    value: object
    cause: str
    remedy: str

    def __str__(self) -> str:
        value = [] if self.value is None else [f"    value:  {self.value!r}"]
        return "\n".join([f"{self.where}: {self.cause}", *value, f"    remedy: {self.remedy}"])


class InvalidValue(ValueError):
    """A value that a configuration must not have: why, and what to write instead."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause, self.remedy = cause, remedy

    def at(self, where: str, value: object) -> Problem:
        """Return the problem that a configuration has this value at that place."""
        return Problem(where=where, value=value, cause=self.cause, remedy=self.remedy)

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


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
    """A limit would be exceeded, so the operator stopped. Everything before the offset is committed."""

    @classmethod
    def before(cls, place: str, operator: str, limit: str) -> BufferFull:
        """Return the error of an operator that stopped before `place`, a position in its input.

        `limit` is the option that sets the limit, such as `buffer.max_keys`.
        """
        way_out = ", or change buffer.when_full" if limit.startswith("buffer.") else ""
        return cls(
            f"{operator} stopped before {place}",
            value=f"{limit} is reached",
            remedy=f"raise {limit}{way_out}; the operator continues there",
        )


class StateError(TidegateError):
    """Stored data contradicts itself. Nothing continues until a person has looked at it."""


class Fenced(StateError):
    """A newer driver has claimed the operator; this one stops."""


class Superseded(StateError):
    """A newer attempt owns a partition's local state; this task has changed nothing."""


class Undecided(StateError):
    """It is unknown whether a partition's newest output was published."""


class InputTruncated(StateError):
    """The input no longer has records that were already read, and may have other records at their offsets."""


class OffsetsGone(StateError):
    """The input no longer has records that were not yet read."""


class EngineError(TidegateError):
    """Spark, Delta, Kafka or the disk failed."""


class Unavailable(EngineError):
    """A broker or a disk does not answer or is full. Once that is fixed, work continues without a restart."""


class StartOver(EngineError):
    """The outcome of an action of the driver is unknown, or another writer has committed; a new claim resolves it."""


class Outdated(EngineError):
    """Files that a commit should replace are no longer in the log: it was not committed, and never will be."""


class OutputTooLarge(EngineError):
    """An emission is larger than the output topic's `max.message.bytes`."""
