"""Builds the Prometheus metrics on each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, NamedTuple, get_args

from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.runtime.telemetry.batch_metrics import by_step
from tidegate.runtime.telemetry.driver_status import State
from tidegate.runtime.telemetry.metric_definitions import METRICS, Family
from tidegate.runtime.telemetry.observation import Observation
from tidegate.runtime.telemetry.service_metrics import BOUNDS_S, DurationHistogram, OperatorMetrics, ServiceMetrics

_COUNTS = {
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

    def __init__(self, application: str, figures: ServiceMetrics, observe: Callable[[], Sequence[Observation]]) -> None:
        self._application, self._figures, self._observe = application, figures, observe

    def collect(self) -> Iterable[Family]:
        """Return every metric with its current samples."""
        samples = Samples(self._application)
        for observation in self._observe():
            _driver(samples, observation)
            if observation.newest is not None:
                _counts(samples, observation.newest)
                _progress(samples, observation, observation.newest)
        with self._figures.counted() as counted:
            for operator, figures in counted.items():
                _durations(samples, operator, figures)
                _measures(samples, operator, figures)
        return samples.found()


_ALIGNMENT = {
    "tidegate_expired_lookups_total": "expired_lookups",
    "tidegate_waiting_records": "waiting_records_now",
    "tidegate_given_up_versions_total": "given_up",
}
"""Metrics of a table and its readers, by the measures of joins and tables."""


class Samples:
    """All metric families, to which samples are added."""

    def __init__(self, application: str) -> None:
        self.families: dict[str, Any] = {metric.name: metric.family() for metric in METRICS}
        self._application = application

    def found(self) -> Iterable[Family]:
        """Return the families. A sample of an operator that is no pipeline has no label `step`."""
        for family in self.families.values():
            family.samples = [_without_empty_step(sample) for sample in family.samples]
        return self.families.values()

    def add(self, name: str, value: float, *labels: object) -> None:
        """Add a sample to a counter or gauge. `labels`: the values of the labels from `operator` on."""
        self.families[name].add_metric(self._labels(labels), value)

    def add_summary(self, name: str, count: int, total: float, *labels: object) -> None:
        """Add a sample to a summary."""
        self.families[name].add_metric(self._labels(labels), count_value=count, sum_value=total)

    def add_histogram(self, name: str, durations: DurationHistogram, *labels: object) -> None:
        """Add a sample to a histogram."""
        buckets = list(zip(_BUCKETS, accumulate(durations.buckets), strict=True))
        self.families[name].add_metric(self._labels(labels), buckets=buckets, sum_value=durations.sum_s)

    def _labels(self, labels: tuple[object, ...]) -> list[str]:
        return [self._application, *map(str, labels)]


def _without_empty_step(sample: Sample) -> Sample:
    labels = {name: value for name, value in sample.labels.items() if name != "step" or value}
    return sample._replace(labels=labels)


def _driver(samples: Samples, observation: Observation) -> None:
    for state in _STATES:
        samples.add("tidegate_condition", state == observation.status.state, observation.operator, state)
    samples.add("tidegate_unclear_publications", len(observation.status.unclear), observation.operator)
    if observation.loop_age_s is not None:
        samples.add("tidegate_loop_age_seconds", observation.loop_age_s, observation.operator)
    samples.add_summary(
        "tidegate_compaction_seconds", observation.compactions, observation.compaction_s, observation.operator
    )


def _counts(samples: Samples, newest: BatchMeta) -> None:
    for partition, known in newest.partitions.items():
        if known.begun:
            values = asdict(known.totals)
            for name, count in _COUNTS.items():
                samples.add(name, values[count], newest.operator, partition)
            samples.add("tidegate_ledger_imbalance_records", imbalance(known.totals), newest.operator, partition)


def imbalance(counts: Counts) -> int:
    """Return the records that are missing from the outcome counts, negative if some are counted twice; must be 0."""
    return counts.records_in - counts.applied - counts.superseded - counts.late - counts.rejected


def _progress(samples: Samples, observation: Observation, newest: BatchMeta) -> None:
    operator, now_ms, unread = observation.operator, SYSTEM_CLOCK.now_ms(), newest.unread(observation.ends)
    for partition, known in newest.partitions.items():
        samples.add("tidegate_next_offset", known.next_offset, operator, partition)
        if observation.ends:
            samples.add("tidegate_consumer_lag_records", unread[partition], operator, partition)
        if (time_ms := known.stream_time) != NO_STREAM_TIME:
            samples.add("tidegate_stream_time_seconds", time_ms / 1_000, operator, partition)
            samples.add("tidegate_stream_time_behind_seconds", (now_ms - time_ms) / 1_000, operator, partition)
    samples.add("tidegate_newest_batch_seconds", newest.clock / 1_000, operator)
    samples.add("tidegate_epoch", newest.epoch, operator)
    samples.add("tidegate_live_files", observation.files, operator)
    samples.add("tidegate_state_rows", observation.state_rows, operator)
    samples.add("tidegate_batches_since_compaction", newest.batch - newest.compacted, operator)


def _durations(samples: Samples, operator: str, figures: OperatorMetrics) -> None:
    samples.add_histogram("tidegate_batch_seconds", figures.batch, operator)
    samples.add_histogram("tidegate_commit_seconds", figures.commit, operator)
    samples.add_histogram("tidegate_publication_seconds", figures.publication, operator)
    samples.add_histogram("tidegate_recovery_seconds", figures.recovery, operator)


def _measures(samples: Samples, operator: str, figures: OperatorMetrics) -> None:
    for partition, measures in figures.metrics.measures.items():
        for step, own in by_step(measures).items():
            place = Place(operator, partition, step)
            _late_and_overdue(samples, own, place)
            _emissions(samples, own, place)
            _buffer(samples, own, place)
            for name, measure in _ALIGNMENT.items():
                if measure in own:
                    samples.add(name, own[measure], *place)
    for step, averages in by_step(figures.metrics.report()).items():
        _average_sizes(samples, averages, operator, step)


class Place(NamedTuple):
    """The operator, partition and step that measures are of; the step is empty unless the operator is a pipeline."""

    operator: str
    partition: int
    step: str


def _average_sizes(samples: Samples, averages: Mapping[str, float], operator: str, step: str) -> None:
    for part, storage in _STORAGES.items():
        for what in ("records", "bytes"):
            if (average := averages.get(f"{part}_{what}_avg_60s")) is not None:
                samples.add(f"tidegate_buffer_avg_{what}", average, operator, step, storage)


def _late_and_overdue(samples: Samples, measures: Mapping[str, int], place: Place) -> None:
    for what in ("lateness", "overtime"):
        if f"{what}_count" in measures:
            total = measures[f"{what}_sum"] / 1_000
            samples.add_summary(f"tidegate_{what}_seconds", measures[f"{what}_count"], total, *place)
        for extreme in ("max", "min"):
            name = f"tidegate_{what}_{extreme}_seconds"
            if name in samples.families and f"{what}_{extreme}" in measures:
                samples.add(name, measures[f"{what}_{extreme}"] / 1_000, *place)


def _emissions(samples: Samples, measures: Mapping[str, int], place: Place) -> None:
    causes = {name.removeprefix("emitted_"): count for name, count in measures.items() if name.startswith("emitted_")}
    for cause, count in causes.items():
        samples.add("tidegate_emitted_records_by_cause_total", count, *place, cause)
        if cause in _EVICTIONS:
            samples.add("tidegate_evicted_records_total", count, *place, cause)
    for what in ("suppressed", "filtered"):
        if what in measures:
            samples.add(f"tidegate_{what}_records_total", measures[what], *place)


def _buffer(samples: Samples, measures: Mapping[str, int], place: Place) -> None:
    for part, storage in _STORAGES.items():
        for what in ("records", "bytes"):
            for when, name in (("now", f"tidegate_buffer_{what}"), ("max", f"tidegate_buffer_max_{what}")):
                if (size := measures.get(f"{part}_{what}_{when}")) is not None:
                    samples.add(name, size, *place, storage)
