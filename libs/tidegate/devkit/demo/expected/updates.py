"""The expected output of the demo's suppression, computed without Tidegate: one dict per partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.devkit.demo.departures import Departure, partition_of


@dataclass
class Expected:
    """The expected emissions of one partition (key, value, timestamp), in order, and what is held at the end."""

    emissions: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    held: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)


def expected(stream: Iterable[Departure], partitions: int, limit_ms: int, max_keys: int) -> list[Expected]:
    """Return the expected output of every partition."""
    parts: list[list[Departure]] = [[] for _ in range(partitions)]
    for departure in stream:
        parts[partition_of(departure.key)].append(departure)
    return [_expected(part, limit_ms, max_keys) for part in parts]


def _expected(stream: list[Departure], limit_ms: int, max_keys: int) -> Expected:
    result, now = Expected(), -1
    first: dict[bytes, int] = {}  # insertion order is the order of arrival
    for departure in stream:
        now = max(now, departure.timestamp)
        first.setdefault(departure.key, departure.timestamp)
        result.held[departure.key] = (departure.value, departure.timestamp)
        while first:
            oldest = min(first, key=first.__getitem__)
            overdue = first[oldest] <= now - limit_ms
            if not overdue and len(first) <= max_keys:
                break
            del first[oldest]
            result.emissions.append((oldest, *result.held.pop(oldest)))
            result.causes["time" if overdue else "keys"] += 1
    return result
