"""What the tasks of an attempt have answered. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, StateError, Superseded, UserError
from tidegate.runtime.messages import PartitionFailure, PartitionResult

_ORDER = (Fenced, Superseded, StateError, UserError, OutputTooLarge, EngineError)


def results_of(answers: Sequence[PartitionResult | PartitionFailure]) -> list[PartitionResult]:
    """The results, by partition. Raises the worst failure if there is one: the attempt has failed with it."""
    raise_worst([answer for answer in answers if isinstance(answer, PartitionFailure)])
    results = [answer for answer in answers if isinstance(answer, PartitionResult)]
    return sorted(results, key=lambda result: result.partition)


def raise_worst(failures: Sequence[PartitionFailure]) -> None:
    """Raise the worst of the failures: what ends the driver comes before what can be tried again."""
    if failures:
        raise _worst(failures)


def _worst(failures: Sequence[PartitionFailure]) -> Exception:

    def rank(failure: PartitionFailure) -> int:
        return next((place for place, kind in enumerate(_ORDER) if isinstance(failure.error, kind)), 0)

    worst = min(failures, key=rank)
    worst.error.add_note(worst.trace)
    return worst.error
