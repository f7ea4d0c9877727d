"""A thing that is wrong, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.contracts.errors import ConfigurationError, TidegateError
from tidegate.contracts.event_time import format_duration_ms


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong (`problem`) with what (`about`: machine, kafka, lake, control or an operator), and what to do."""

    about: str
    problem: str
    value: str = ""
    remedy: str


Findings = Iterator[Finding]

_COARSE_MS = ((172_800_000, 3_600_000), (3_600_000, 60_000), (1_000, 1_000))
"""From so long on, a duration is told in steps of that."""


def roughly(duration_ms: int) -> str:
    """The duration as a person would say it."""
    step_ms = next((step for bound, step in _COARSE_MS if duration_ms >= bound), 1)
    return format_duration_ms(round(duration_ms / step_ms) * step_ms)


def of_error(about: str, error: TidegateError) -> Finding:
    """What the error says, as a finding."""
    value = "" if error.value is None else " ".join(str(error.value).split())
    if isinstance(error, ConfigurationError):
        value = "; ".join(f"{each.where}: {each.cause}" for each in error.problems)
    return Finding(about=about, problem=error.problem, value=value, remedy=error.remedy or "see the service's lines")
