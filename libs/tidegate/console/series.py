"""The lines of the charts on an operator's page: what each of its newest batches did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, PartitionChange
from tidegate.contracts.event_time import parse_duration_ms

CHARTED_BATCHES = 500
"""Most batches on a chart."""

_CAUSE = "emitted_"
_BOUNDS = ("grace", "max_lateness")
"""Options that bound the lateness of records which are accepted."""


class Chart(NamedTuple):
    """A chart: its title, and by name the lines, which have a number for each batch, or None."""

    title: str
    lines: Mapping[str, Sequence[float | None]]


def charts_of(metas: Sequence[BatchMeta]) -> dict[str, Any]:
    """Return the charts of these batches, oldest first: their clocks in seconds, their numbers, and the lines."""
    changes = [list(meta.changed.values()) for meta in metas]
    lateness: dict[str, Sequence[float | None]] = {"largest, in seconds": [_largest_lateness(each) for each in changes]}
    if any(bounds := [_bound_s(meta.settings) for meta in metas]):
        lateness["accepted up to"] = bounds
    charts = [
        Chart("Records in", {"read": _counted(changes, "records_in"), "late": _counted(changes, "late")}),
        Chart("Emissions by cause", _by_cause(changes)),
        Chart("Held", {"records": [sum(known.totals.held for known in meta.partitions.values()) for meta in metas]}),
        Chart("Lateness", lateness),
    ]
    return {
        "time": [meta.clock / 1_000 for meta in metas],
        "batch": [meta.batch for meta in metas],
        "charts": [chart._asdict() for chart in charts],
    }


def _counted(changes: Iterable[Sequence[PartitionChange]], count: str) -> list[int]:
    return [sum(getattr(change.counts, count) for change in each) for each in changes]


def _by_cause(changes: Sequence[Sequence[PartitionChange]]) -> dict[str, list[int]]:
    """Return the emissions of each cause that occurs; all emissions if the operator does not count causes."""
    measured = [[_without_steps(change.measures) for change in each] for each in changes]
    causes = dict.fromkeys(name for each in measured for one in each for name in one if name.startswith(_CAUSE))
    lines = {
        cause.removeprefix(_CAUSE): [sum(one.get(cause, 0) for one in each) for each in measured] for cause in causes
    }
    return {cause: line for cause, line in lines.items() if any(line)} or {"all": _counted(changes, "emitted")}


def _without_steps(measures: Mapping[str, int]) -> dict[str, int]:
    """Return the measures, added up over the steps of a pipeline."""
    found: dict[str, int] = {}
    for name, number in measures.items():
        short = name.rpartition(".")[2]
        found[short] = found.get(short, 0) + number
    return found


def _largest_lateness(changes: Iterable[PartitionChange]) -> float | None:
    found = [
        number
        for change in changes
        for name, number in change.measures.items()
        if name.rpartition(".")[2] == "lateness_max"
    ]
    return max(found) / 1_000 if found else None


def _bound_s(settings: Mapping[str, Any]) -> float | None:
    """Return the lateness in seconds up to which records are accepted; None if no option of the operator says it."""
    window = settings.get("window")
    options = {**(window if isinstance(window, Mapping) else {}), **settings}
    known = (options.get(name) for name in _BOUNDS)
    return next((parse_duration_ms(each) / 1_000 for each in known if each not in (None, "forever")), None)
