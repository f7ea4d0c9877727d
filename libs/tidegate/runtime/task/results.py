"""Evaluation of the answers of an attempt's tasks. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, StateError, Superseded, UserError
from tidegate.runtime.task.messages import PartitionFailure, PartitionResult, RecoveryOutcome

_ORDER = (Fenced, Superseded, StateError, UserError, OutputTooLarge, EngineError)


def results_of(answers: Sequence[PartitionResult | PartitionFailure]) -> list[PartitionResult]:
    """Return the results in order of partitions. Raise the worst failure, with which the attempt has failed."""
    raise_worst([answer for answer in answers if isinstance(answer, PartitionFailure)])
    results = [answer for answer in answers if isinstance(answer, PartitionResult)]
    return sorted(results, key=lambda result: result.partition)


def outcomes_of(answers: Sequence[RecoveryOutcome | PartitionFailure]) -> list[RecoveryOutcome]:
    """Return the outcome of each recovery. Raise the worst error if there is a failure."""
    raise_worst([answer for answer in answers if isinstance(answer, PartitionFailure)])
    return [answer for answer in answers if isinstance(answer, RecoveryOutcome)]


def raise_worst(failures: Sequence[PartitionFailure]) -> None:
    """Raise the worst failure, if there is one: errors that end the driver precede those that can be retried."""
    if failures:
        raise _worst(failures)


def _worst(failures: Sequence[PartitionFailure]) -> Exception:

    def rank(failure: PartitionFailure) -> int:
        return next((place for place, kind in enumerate(_ORDER) if isinstance(failure.error, kind)), 0)

    worst = min(failures, key=rank)
    worst.error.add_note(worst.trace)
    return worst.error
