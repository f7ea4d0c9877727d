"""Windows of event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.application.options import Duration


@dataclass(frozen=True)
class Window:
    """Windows of event time. `options`: those of `window` in a configuration file."""

    options: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class EndingWindow(Window):
    """Windows that end, and therefore close."""


def tumbling(length: Duration, *, grace: Duration) -> EndingWindow:
    """Return windows of equal length that do not overlap. After its end each accepts late records for the grace."""
    return EndingWindow({"tumbling": length, "grace": grace})


def hopping(length: Duration, *, advance: Duration, grace: Duration) -> EndingWindow:
    """Return overlapping windows of equal length, one of which starts every `advance`."""
    return EndingWindow({"hopping": length, "advance": advance, "grace": grace})


def session(gap: Duration, *, grace: Duration, max_length: Duration | None = None) -> EndingWindow:
    """Return windows of records that are at most a gap apart.

    The operator stops before a record that would make a session longer than `max_length`; default: any length.
    """
    return EndingWindow({"session": gap, "grace": grace, "max_length": max_length})


def unlimited() -> Window:
    """Return one window per key, which never ends."""
    return Window({"unlimited": True})
