"""Builds the Prometheus metrics on each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, get_args

from prometheus_client.registry import Collector

from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.schema import BatchMeta, Counts
from tidegate.runtime import clock
from tidegate.runtime.telemetry.driver_status import State
from tidegate.runtime.telemetry.figures import BOUNDS_S, Figures, OperatorFigures, Times
from tidegate.runtime.telemetry.names import METRICS, Family
from tidegate.runtime.telemetry.observation import Observation

_LEDGER = {
    "tidegate_records_in_total": "records_in",
    "tidegate_applied_records_total": "applied",
    "tidegate_superseded_records_total": "superseded",
    "tidegate_late_records_total": "late",
    "tidegate_rejected_records_total": "rejected",
    "tidegate_emitted_records_total": "emitted",
    "tidegate_held_records": "held",
    "tidegate_held_bytes": "held_bytes",
}
_STORAGES = {"memory": "memory", "disk": "disk", "buffer": "memory"}
"""From a buffer's parts, as measures name them, to the label `storage`; a join's buffer has one part, in memory."""

_EVICTIONS = ("keys", "bytes")
"""Causes of early emissions: those that a full buffer forces."""

_STATES = tuple(state for each in get_args(State) for state in (get_args(each) or (each,)))
_BUCKETS = (*(str(bound) for bound in BOUNDS_S), "+Inf")


class ServiceCollector(Collector):
    """The metrics of a process, from observations of its drivers and the figures of their batches."""

    def __init__(self, application: str, figures: Figures, observe: Callable[[], Sequence[Observation]]) -> None:
        self._application, self._figures, self._observe = application, figures, observe

    def collect(self) -> Iterable[Family]:
        """Return every metric with its current samples."""
        sheet = Sheet(self._application)
        for seen in self._observe():
            _driver(sheet, seen)
            if seen.newest is not None:
                _ledger(sheet, seen.newest)
                _progress(sheet, seen, seen.newest)
        with self._figures.counted() as counted:
            for operator, figures in counted.items():
                _times(sheet, operator, figures)
                _measures(sheet, operator, figures)
        return sheet.families.values()


_ALIGNMENT = {
    "tidegate_expired_lookups_total": "expired_lookups",
    "tidegate_waiting_records": "waiting_records_now",
    "tidegate_given_up_versions_total": "given_up",
}
"""Metrics of a table and its readers, by the measures of joins and tables."""


class Sheet:
    """All metric families, to which samples are added."""

    def __init__(self, application: str) -> None:
        self.families: dict[str, Any] = {metric.name: metric.family() for metric in METRICS}
        self._application = application

    def put(self, name: str, value: float, *labels: object) -> None:
        """Add a sample to a counter or gauge. `labels`: the values of the labels from `operator` on."""
        self.families[name].add_metric(self._labels(labels), value)

    def put_sum(self, name: str, count: int, total: float, *labels: object) -> None:
        """Add a sample to a summary."""
        self.families[name].add_metric(self._labels(labels), count_value=count, sum_value=total)

    def put_times(self, name: str, times: Times, *labels: object) -> None:
        """Add a sample to a histogram."""
        buckets = list(zip(_BUCKETS, accumulate(times.buckets), strict=True))
        self.families[name].add_metric(self._labels(labels), buckets=buckets, sum_value=times.sum_s)

    def _labels(self, labels: tuple[object, ...]) -> list[str]:
        return [self._application, *map(str, labels)]


def _driver(sheet: Sheet, seen: Observation) -> None:
    for state in _STATES:
        sheet.put("tidegate_condition", state == seen.condition.state, seen.operator, state)
    sheet.put("tidegate_unclear_publications", len(seen.condition.unclear), seen.operator)
    if seen.idle_s is not None:
        sheet.put("tidegate_loop_age_seconds", seen.idle_s, seen.operator)
    sheet.put_sum("tidegate_compaction_seconds", seen.compactions, seen.compaction_s, seen.operator)


def _ledger(sheet: Sheet, newest: BatchMeta) -> None:
    for partition, counts in newest.totals.items():
        said = asdict(counts)
        for name, count in _LEDGER.items():
            sheet.put(name, said[count], newest.operator, partition)
        sheet.put("tidegate_ledger_imbalance_records", imbalance(counts), newest.operator, partition)


def imbalance(counts: Counts) -> int:
    """Return the records that are missing from the outcome counts, negative if some are counted twice; must be 0."""
    return counts.records_in - counts.applied - counts.superseded - counts.late - counts.rejected


def _progress(sheet: Sheet, seen: Observation, newest: BatchMeta) -> None:
    operator = seen.operator
    for partition, offset in newest.offsets.get(seen.input, {}).items():
        sheet.put("tidegate_next_offset", offset, operator, partition)
        if partition in seen.ends:
            sheet.put("tidegate_consumer_lag_records", max(0, seen.ends[partition] - offset), operator, partition)
    now_ms = clock.now_ms()
    for partition, stream_time in newest.stream_time.items():
        if stream_time != NO_STREAM_TIME:
            sheet.put("tidegate_stream_time_seconds", stream_time / 1_000, operator, partition)
            sheet.put("tidegate_stream_time_behind_seconds", (now_ms - stream_time) / 1_000, operator, partition)
    sheet.put("tidegate_newest_batch_seconds", newest.clock / 1_000, operator)
    sheet.put("tidegate_epoch", newest.epoch, operator)
    sheet.put("tidegate_live_files", seen.files, operator)
    sheet.put("tidegate_state_rows", seen.state_rows, operator)
    sheet.put("tidegate_batches_since_compaction", newest.batch - newest.compacted, operator)


def _times(sheet: Sheet, operator: str, figures: OperatorFigures) -> None:
    sheet.put_times("tidegate_batch_seconds", figures.batch, operator)
    sheet.put_times("tidegate_commit_seconds", figures.commit, operator)
    sheet.put_times("tidegate_publication_seconds", figures.publication, operator)
    sheet.put_times("tidegate_recovery_seconds", figures.recovery, operator)


def _measures(sheet: Sheet, operator: str, figures: OperatorFigures) -> None:
    for partition, measures in figures.metrics.measures.items():
        _late_and_overdue(sheet, measures, operator, partition)
        _emissions(sheet, measures, operator, partition)
        _buffer(sheet, measures, operator, partition)
        for name, measure in _ALIGNMENT.items():
            if measure in measures:
                sheet.put(name, measures[measure], operator, partition)
    averages = figures.metrics.report()
    for part, storage in _STORAGES.items():
        for what in ("records", "bytes"):
            if (average := averages.get(f"{part}_{what}_avg_60s")) is not None:
                sheet.put(f"tidegate_buffer_avg_{what}", average, operator, storage)


def _late_and_overdue(sheet: Sheet, measures: Mapping[str, int], *place: object) -> None:
    for what in ("lateness", "overtime"):
        if f"{what}_count" in measures:
            total = measures[f"{what}_sum"] / 1_000
            sheet.put_sum(f"tidegate_{what}_seconds", measures[f"{what}_count"], total, *place)
        for extreme in ("max", "min"):
            name = f"tidegate_{what}_{extreme}_seconds"
            if name in sheet.families and f"{what}_{extreme}" in measures:
                sheet.put(name, measures[f"{what}_{extreme}"] / 1_000, *place)


def _emissions(sheet: Sheet, measures: Mapping[str, int], *place: object) -> None:
    causes = {name.removeprefix("emitted_"): count for name, count in measures.items() if name.startswith("emitted_")}
    for cause, count in causes.items():
        sheet.put("tidegate_emitted_records_by_cause_total", count, *place, cause)
        if cause in _EVICTIONS:
            sheet.put("tidegate_evicted_records_total", count, *place, cause)
    if "suppressed" in measures:
        sheet.put("tidegate_suppressed_records_total", measures["suppressed"], *place)


def _buffer(sheet: Sheet, measures: Mapping[str, int], *place: object) -> None:
    for part, storage in _STORAGES.items():
        for what in ("records", "bytes"):
            for when, name in (("now", f"tidegate_buffer_{what}"), ("max", f"tidegate_buffer_max_{what}")):
                if (size := measures.get(f"{part}_{what}_{when}")) is not None:
                    sheet.put(name, size, *place, storage)
