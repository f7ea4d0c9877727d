"""The findings of the doctor: problems with their remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.contracts.errors import ConfigurationError, TidegateError
from tidegate.contracts.event_time import format_duration_ms


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem and its remedy. `about`: what it concerns: machine, kafka, lake, state, control or an operator."""

    about: str
    problem: str
    value: str = ""
    remedy: str


Findings = Iterator[Finding]

_COARSE_MS = ((172_800_000, 3_600_000), (3_600_000, 60_000), (1_000, 1_000))
"""(from, step): a duration of at least `from` is rounded to multiples of `step`."""


def roughly(duration_ms: int) -> str:
    """Return the duration as text, rounded for people."""
    step_ms = next((step for bound, step in _COARSE_MS if duration_ms >= bound), 1)
    return format_duration_ms(round(duration_ms / step_ms) * step_ms)


def of_error(about: str, error: TidegateError) -> Finding:
    """Return the error as a finding."""
    value = "" if error.value is None else " ".join(str(error.value).split())
    if isinstance(error, ConfigurationError):
        value = "; ".join(f"{each.where}: {each.cause}" for each in error.problems)
    return Finding(about=about, problem=error.problem, value=value, remedy=error.remedy or "see the service's log")
