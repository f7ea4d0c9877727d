"""The list of all metrics: name, kind, labels and help text.

All have the labels `application` and `operator`. Units are Prometheus' base units. `docs/reference/metrics.md` lists
the same names. Dashboards rely on them: a change needs a line in the CHANGELOG.
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
OF_CAUSE = (*OF_PARTITION, "cause")
OF_STORAGE = (*OF_PARTITION, "storage")

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


METRICS = (
    # the ledger: counted since the operator's log began
    Metric("tidegate_records_in_total", "counter", OF_PARTITION, "Records read."),
    Metric("tidegate_applied_records_total", "counter", OF_PARTITION, "Records that were applied."),
    Metric("tidegate_superseded_records_total", "counter", OF_PARTITION, "Records that replaced what was not emitted."),
    Metric("tidegate_late_records_total", "counter", OF_PARTITION, "Records dropped for being late."),
    Metric("tidegate_rejected_records_total", "counter", OF_PARTITION, "Records that could not be taken."),
    Metric("tidegate_emitted_records_total", "counter", OF_PARTITION, "Emissions."),
    Metric("tidegate_ledger_imbalance_records", "gauge", OF_PARTITION, "Records without exactly one count; must be 0."),
    Metric("tidegate_held_records", "gauge", OF_PARTITION, "What is held."),
    Metric("tidegate_held_bytes", "gauge", OF_PARTITION, "Bytes held, as the operator counts them."),
    # KIP-328: counted since the service started
    Metric("tidegate_lateness_seconds", "summary", OF_PARTITION, "How late records that were not rejected came."),
    Metric("tidegate_lateness_max_seconds", "gauge", OF_PARTITION, "The largest lateness."),
    Metric("tidegate_emitted_records_by_cause_total", "counter", OF_CAUSE, "Emissions by their cause."),
    Metric("tidegate_evicted_records_total", "counter", OF_CAUSE, "Emissions before their time, of a full buffer."),
    Metric("tidegate_suppressed_records_total", "counter", OF_PARTITION, "Updates that a later one made unnecessary."),
    Metric("tidegate_buffer_records", "gauge", OF_STORAGE, "Records in the buffer."),
    Metric("tidegate_buffer_bytes", "gauge", OF_STORAGE, "Bytes in the buffer."),
    Metric("tidegate_buffer_max_records", "gauge", OF_STORAGE, "Most records that the buffer had."),
    Metric("tidegate_buffer_max_bytes", "gauge", OF_STORAGE, "Most bytes that the buffer had."),
    Metric(
        "tidegate_buffer_avg_records",
        "gauge",
        (*OF_OPERATOR, "storage"),
        "Records in the buffers of all partitions, averaged over the batches of the last minute that had one.",
    ),
    Metric(
        "tidegate_buffer_avg_bytes",
        "gauge",
        (*OF_OPERATOR, "storage"),
        "Bytes in the buffers of all partitions, averaged over the batches of the last minute that had one.",
    ),
    Metric("tidegate_overtime_seconds", "summary", OF_PARTITION, "How long after their time emissions came."),
    Metric("tidegate_overtime_min_seconds", "gauge", OF_PARTITION, "The smallest overtime."),
    # a table and its readers: counted since the service started
    Metric("tidegate_expired_lookups_total", "counter", OF_PARTITION, "Lookups of versions that the table lost."),
    Metric("tidegate_waiting_records", "gauge", OF_PARTITION, "Due records that wait for their table alone."),
    Metric("tidegate_given_up_versions_total", "counter", OF_PARTITION, "Versions that went, though needed."),
    # progress
    Metric("tidegate_next_offset", "gauge", OF_PARTITION, "The offset that is read next."),
    Metric("tidegate_consumer_lag_records", "gauge", OF_PARTITION, "Offsets to read, as the last round saw the topic."),
    Metric("tidegate_stream_time_seconds", "gauge", OF_PARTITION, "Stream time, in seconds since the epoch."),
    Metric("tidegate_stream_time_behind_seconds", "gauge", OF_PARTITION, "Wall clock less stream time."),
    Metric("tidegate_newest_batch_seconds", "gauge", OF_OPERATOR, "The newest commit's clock, since the epoch."),
    Metric("tidegate_epoch", "gauge", OF_OPERATOR, "How often the operator has been claimed."),
    # times: counted since the service started
    Metric("tidegate_batch_seconds", "histogram", OF_OPERATOR, "Job, commit and publication of a batch."),
    Metric("tidegate_commit_seconds", "histogram", OF_OPERATOR, "Delta commit of a batch."),
    Metric("tidegate_publication_seconds", "histogram", OF_OPERATOR, "Ends of a batch's Kafka transactions."),
    Metric("tidegate_recovery_seconds", "histogram", OF_OPERATOR, "Return of local states that did not just go on."),
    Metric("tidegate_compaction_seconds", "summary", OF_OPERATOR, "Compactions, from their plan to their commit."),
    # the log
    Metric("tidegate_live_files", "gauge", OF_OPERATOR, "Data files of the operator's log."),
    Metric("tidegate_state_rows", "gauge", OF_OPERATOR, "Rows of the changelog and its snapshots in those files."),
    Metric("tidegate_batches_since_compaction", "gauge", OF_OPERATOR, "Batches since the newest compaction."),
    # the driver
    Metric("tidegate_condition", "gauge", (*OF_OPERATOR, "state"), "1 for the state that the driver is in, else 0."),
    Metric("tidegate_loop_age_seconds", "gauge", OF_OPERATOR, "Since the driver's loop last turned."),
    Metric("tidegate_unclear_publications", "gauge", OF_OPERATOR, "Partitions whose output Kafka has not confirmed."),
)

BY_NAME = {metric.name: metric for metric in METRICS}
