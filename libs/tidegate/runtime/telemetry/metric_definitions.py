"""The list of all metrics: name, kind, labels and help text.

All have the labels `application` and `operator`; only a pipeline's samples have the label `step`. Units are Prometheus'
base units. `docs/reference/metrics.md` lists the same names. Dashboards rely on them: a change needs a line in the
CHANGELOG.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | SummaryMetricFamily
Kind = Literal["counter", "gauge", "histogram", "summary"]

OF_OPERATOR = ("application", "operator")
OF_PARTITION = (*OF_OPERATOR, "partition")
OF_STEP = (*OF_PARTITION, "step")
OF_CAUSE = (*OF_STEP, "cause")
OF_STORAGE = (*OF_STEP, "storage")

_FAMILIES: dict[Kind, type[Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "summary": SummaryMetricFamily,
}


class Metric(NamedTuple):
    """A metric: its name, kind, labels and help text."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    def family(self) -> Family:
        """Return the Prometheus metric family, without samples."""
        return _FAMILIES[self.kind](self.name, self.help, labels=self.labels)


# A table of values: its entries are alike on purpose.
METRICS = (
    # counts since the operator log began
    Metric("tidegate_records_in_total", "counter", OF_PARTITION, "Records read."),
    Metric("tidegate_applied_records_total", "counter", OF_PARTITION, "Records applied to the state."),
    Metric(
        "tidegate_superseded_records_total",
        "counter",
        OF_PARTITION,
        "Accepted records that replaced a held record, or repeated one.",
    ),
    Metric("tidegate_late_records_total", "counter", OF_PARTITION, "Late records, which were not applied."),
    Metric("tidegate_rejected_records_total", "counter", OF_PARTITION, "Rejected records, such as undecodable ones."),
    Metric("tidegate_emitted_records_total", "counter", OF_PARTITION, "Records emitted."),
    Metric(
        "tidegate_ledger_imbalance_records",
        "gauge",
        OF_PARTITION,
        "Records read minus applied, superseded, late and rejected ones; not 0 means a bug.",
    ),
    Metric("tidegate_held_records", "gauge", OF_PARTITION, "Records or other entries held in the state."),
    Metric("tidegate_held_bytes", "gauge", OF_PARTITION, "Bytes held in the state, as the operator counts them."),
    # KIP-328's metrics, since the service started
    Metric("tidegate_lateness_seconds", "summary", OF_STEP, "Lateness of accepted and late records."),
    Metric("tidegate_lateness_max_seconds", "gauge", OF_STEP, "Largest lateness."),
    Metric("tidegate_emitted_records_by_cause_total", "counter", OF_CAUSE, "Records emitted, by cause."),
    Metric(
        "tidegate_evicted_records_total",
        "counter",
        OF_CAUSE,
        "Records emitted early because the buffer was full, by exceeded limit.",
    ),
    Metric(
        "tidegate_suppressed_records_total",
        "counter",
        OF_STEP,
        "Updates not emitted because a later one replaced them.",
    ),
    Metric(
        "tidegate_filtered_records_total", "counter", OF_STEP, "Records that a pipeline's filter or function dropped."
    ),
    Metric("tidegate_buffer_records", "gauge", OF_STORAGE, "Records in the buffer."),
    Metric("tidegate_buffer_bytes", "gauge", OF_STORAGE, "Bytes in the buffer."),
    Metric("tidegate_buffer_max_records", "gauge", OF_STORAGE, "Peak number of records in the buffer."),
    Metric("tidegate_buffer_max_bytes", "gauge", OF_STORAGE, "Peak number of bytes in the buffer."),
    Metric(
        "tidegate_buffer_avg_records",
        "gauge",
        (*OF_OPERATOR, "step", "storage"),
        "Records in the buffers of all partitions: the average over the last minute's batches that measured it.",
    ),
    Metric(
        "tidegate_buffer_avg_bytes",
        "gauge",
        (*OF_OPERATOR, "step", "storage"),
        "Bytes in the buffers of all partitions: the average over the last minute's batches that measured it.",
    ),
    Metric("tidegate_overtime_seconds", "summary", OF_STEP, "Delay of emissions after they were due."),
    Metric("tidegate_overtime_min_seconds", "gauge", OF_STEP, "Smallest delay of an emission after it was due."),
    # tables and joins, since the service started
    Metric("tidegate_expired_lookups_total", "counter", OF_STEP, "Lookups of versions that the table no longer keeps."),
    Metric("tidegate_waiting_records", "gauge", OF_STEP, "Records that are due and wait only for the table."),
    Metric(
        "tidegate_given_up_versions_total",
        "counter",
        OF_STEP,
        "Versions that the table dropped although a join still needed them.",
    ),
    # progress
    Metric("tidegate_next_offset", "gauge", OF_PARTITION, "Offset to read next."),
    Metric(
        "tidegate_consumer_lag_records",
        "gauge",
        OF_PARTITION,
        "Offsets left to read when the driver last read the topic's end.",
    ),
    Metric("tidegate_stream_time_seconds", "gauge", OF_PARTITION, "Stream time, in seconds since the epoch."),
    Metric("tidegate_stream_time_behind_seconds", "gauge", OF_PARTITION, "Wall clock minus stream time."),
    Metric(
        "tidegate_newest_batch_seconds",
        "gauge",
        OF_OPERATOR,
        "Wall-clock time of the newest commit, in seconds since the epoch.",
    ),
    Metric("tidegate_epoch", "gauge", OF_OPERATOR, "Number of times a driver has claimed the operator."),
    # durations, since the service started
    Metric("tidegate_batch_seconds", "histogram", OF_OPERATOR, "Duration of a batch: job, commit and publication."),
    Metric("tidegate_commit_seconds", "histogram", OF_OPERATOR, "Duration of a batch's Delta commit."),
    Metric(
        "tidegate_publication_seconds", "histogram", OF_OPERATOR, "Duration of committing a batch's Kafka transactions."
    ),
    Metric(
        "tidegate_recovery_seconds",
        "histogram",
        OF_OPERATOR,
        "Duration of recovering local states that could not be used as they were.",
    ),
    Metric("tidegate_compaction_seconds", "summary", OF_OPERATOR, "Duration of compactions, from plan to commit."),
    # the log
    Metric("tidegate_live_files", "gauge", OF_OPERATOR, "Data files in the operator log."),
    Metric("tidegate_state_rows", "gauge", OF_OPERATOR, "Rows of changelog and snapshots in those files."),
    Metric("tidegate_batches_since_compaction", "gauge", OF_OPERATOR, "Batches since the last compaction."),
    # the driver
    Metric(
        "tidegate_condition", "gauge", (*OF_OPERATOR, "state"), "1 for the driver's current state, 0 for all others."
    ),
    Metric("tidegate_loop_age_seconds", "gauge", OF_OPERATOR, "Seconds since the driver's loop began its last round."),
    Metric(
        "tidegate_unclear_publications", "gauge", OF_OPERATOR, "Partitions whose newest output Kafka has not confirmed."
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
