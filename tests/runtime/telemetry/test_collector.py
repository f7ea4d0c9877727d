"""The output of `/metrics` for a given source."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime.telemetry.conftest import COUNTS, SECONDS, StillDriver, application, busy, driver_status, meta
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.clock import SystemClock
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.runtime.telemetry import service_metrics
from tidegate.runtime.telemetry.metric_definitions import METRICS
from tidegate.runtime.telemetry.telemetry import Telemetry

pytestmark = pytest.mark.fast

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"


def told(*drivers: StillDriver) -> Telemetry:
    telemetry = Telemetry(application())
    telemetry.watch(drivers)
    return telemetry


def samples(telemetry: Telemetry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(telemetry.metrics("").body.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    wanted = {"application": "shop", "operator": "updates"} | labels
    return samples(telemetry)[name, frozenset(wanted.items())]


def test_every_metric_has_a_sample_of_a_service_in_which_everything_has_happened(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(), SECONDS)
    families = text_string_to_metric_families(telemetry.metrics("").body.decode())
    sampled = {family.name for family in families if family.samples}
    assert sampled == {metric.name.removesuffix("_total") for metric in METRICS}


def test_a_strict_reader_of_openmetrics_takes_every_metric(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(), SECONDS)
    text = telemetry.metrics("application/openmetrics-text; version=1.0.0").body.decode()
    assert len(list(openmetrics.text_string_to_metric_families(text))) == len(METRICS)


def test_the_reference_has_every_metric_as_it_is_exported() -> None:
    rows = re.findall(r"^\| `(tidegate_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    own = [
        (metric.name, metric.kind, ", ".join(metric.labels[2:]), metric.help.removesuffix(".")) for metric in METRICS
    ]
    assert [(name, kind, labels.strip(), help.removesuffix(".")) for name, kind, labels, help in rows] == own


def test_metric_names_follow_prometheus_conventions() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert not re.search(r"_(ms|millis|kb|minutes)\b", metric.name), metric


def test_the_counts_are_those_of_the_newest_commit(driver: StillDriver) -> None:
    telemetry = told(driver)
    assert value(telemetry, "tidegate_records_in_total", partition="7") == COUNTS.records_in
    assert value(telemetry, "tidegate_late_records_total", partition="7") == COUNTS.late
    assert value(telemetry, "tidegate_held_bytes", partition="7") == COUNTS.held_bytes
    assert value(telemetry, "tidegate_ledger_imbalance_records", partition="7") == 0


def test_a_record_without_a_count_is_an_imbalance(driver: StillDriver) -> None:
    driver.said["newest"] = busy(totals={7: Counts(records_in=10, applied=8)})
    assert value(told(driver), "tidegate_ledger_imbalance_records", partition="7") == 2


def test_lag_is_as_of_the_last_check_of_the_topic_and_never_negative(driver: StillDriver) -> None:
    assert value(told(driver), "tidegate_consumer_lag_records", partition="7") == 42
    driver.said["ends"] = {"in": {7: 90}}
    assert value(told(driver), "tidegate_consumer_lag_records", partition="7") == 0
    driver.said["ends"] = {}
    assert not [name for name, _ in samples(told(driver)) if name == "tidegate_consumer_lag_records"]


def test_status_compares_stream_time_with_the_wall_clock(driver: StillDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: 100_000)
    assert value(told(driver), "tidegate_stream_time_seconds", partition="7") == 60
    assert value(told(driver), "tidegate_stream_time_behind_seconds", partition="7") == 40


def test_a_partition_without_a_record_has_no_stream_time(driver: StillDriver) -> None:
    driver.said["newest"] = busy(stream_time={7: -1})
    assert not [name for name, _ in samples(told(driver)) if name.startswith("tidegate_stream_time")]


def test_lateness_overtime_and_causes_are_those_of_all_batches(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(batch=1), SECONDS)
    telemetry.note(busy(batch=2), SECONDS)
    assert value(telemetry, "tidegate_lateness_seconds_sum", partition="7") == 10
    assert value(telemetry, "tidegate_lateness_seconds_count", partition="7") == 18
    assert value(telemetry, "tidegate_lateness_max_seconds", partition="7") == 4
    assert value(telemetry, "tidegate_overtime_seconds_sum", partition="7") == 1.4
    assert value(telemetry, "tidegate_overtime_min_seconds", partition="7") == 0.3
    assert value(telemetry, "tidegate_emitted_records_by_cause_total", partition="7", cause="time") == 2
    assert value(telemetry, "tidegate_evicted_records_total", partition="7", cause="keys") == 4
    assert value(telemetry, "tidegate_suppressed_records_total", partition="7") == 4
    assert not [labels for name, labels in samples(telemetry) if "evicted" in name and ("cause", "time") in labels]


def test_the_buffer_s_current_peak_and_average_size_is_reported_in_memory_and_on_disk(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(batch=1), SECONDS)
    telemetry.note(busy(batch=2, measures={7: {"memory_records_now": 4, "disk_records_now": 0}}), SECONDS)
    assert value(telemetry, "tidegate_buffer_records", partition="7", storage="memory") == 4
    assert value(telemetry, "tidegate_buffer_max_records", partition="7", storage="memory") == 5
    assert value(telemetry, "tidegate_buffer_bytes", partition="7", storage="disk") == 10
    assert value(telemetry, "tidegate_buffer_avg_records", storage="memory") == 3
    assert value(telemetry, "tidegate_buffer_avg_records", storage="disk") == 0.5


def test_the_measures_of_a_pipeline_name_their_step(driver: StillDriver) -> None:
    per_hour = {"name": "per_hour", "kind": "windowed_aggregation", "window": {"tumbling": "10ms", "grace": 0}}
    steps = [
        per_hour | {"aggregate": {"count": True}, "emit": "updates"},
        {
            "name": "final",
            "kind": "suppression",
            "until": "window_close",
            "buffer": {"max_keys": 9, "when_full": "spill"},
        },
    ]
    pipeline = pipeline_of(PipelineConfig.model_validate({"input": "in", "steps": steps}))
    state = pipeline.open(MemoryStorage(pipeline.layout))
    rows = [Row(b"k", b"v", time, at) for at, time in enumerate([1, 3, 2, 12])]
    telemetry = told(driver)
    telemetry.note(busy(measures={7: state.step(Records.from_rows(rows), 0).measures}), SECONDS)
    assert value(telemetry, "tidegate_lateness_seconds_count", partition="7", step="per_hour") == 4
    assert value(telemetry, "tidegate_lateness_max_seconds", partition="7", step="per_hour") == 0.001
    of_cause = "tidegate_emitted_records_by_cause_total"
    assert value(telemetry, of_cause, partition="7", step="final", cause="window_close") == 1
    assert value(telemetry, "tidegate_suppressed_records_total", partition="7", step="final") == 2
    assert value(telemetry, "tidegate_buffer_records", partition="7", step="final", storage="memory") == 1
    assert value(telemetry, "tidegate_buffer_avg_records", step="final", storage="memory") == 1


def test_the_records_that_a_filter_dropped_are_counted_by_step(driver: StillDriver) -> None:
    steps = [
        {"name": "recent", "filter": "timestamp >= 3"},
        {"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}},
    ]
    pipeline = pipeline_of(PipelineConfig.model_validate({"input": "in", "steps": steps}))
    rows = [Row(b"k", b"v", time, at) for at, time in enumerate([1, 3, 2, 12])]
    result = pipeline.open(MemoryStorage(pipeline.layout)).step(Records.from_rows(rows), 0)
    telemetry = told(driver)
    telemetry.note(busy(measures={7: result.measures}), SECONDS)
    assert value(telemetry, "tidegate_filtered_records_total", partition="7", step="recent") == 2


def test_the_measures_of_a_single_operator_have_no_label_for_a_step(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(), SECONDS)
    assert "step=" not in telemetry.metrics("").body.decode()
    assert value(telemetry, "tidegate_lateness_seconds_count", partition="7") == 9


def test_durations_are_counted_in_buckets_and_recoveries_only_if_one_happened(driver: StillDriver) -> None:
    telemetry = told(driver)
    telemetry.note(busy(batch=1), {"job": 0.3, "recover": 0.02, "commit": 0.04, "publish": 0.2})
    telemetry.note(meta(2), {"job": 100.0, "recover": 0.01, "commit": 0.001, "publish": 0.0})
    assert value(telemetry, "tidegate_commit_seconds_bucket", le="0.005") == 1
    assert value(telemetry, "tidegate_commit_seconds_bucket", le="0.05") == 2
    assert value(telemetry, "tidegate_batch_seconds_bucket", le="60.0") == 1
    assert value(telemetry, "tidegate_batch_seconds_count") == 2
    assert value(telemetry, "tidegate_batch_seconds_sum") == pytest.approx(100.541)
    assert value(telemetry, "tidegate_recovery_seconds_count") == 1
    assert value(telemetry, "tidegate_publication_seconds_count") == 1
    assert value(telemetry, "tidegate_compaction_seconds_count") == 2


def test_one_state_is_1_and_all_others_are_0(driver: StillDriver) -> None:
    telemetry = told(driver)
    said = {
        dict(labels)["state"]: v for (name, labels), v in samples(telemetry).items() if name == "tidegate_condition"
    }
    assert [state for state, is_it in said.items() if is_it] == ["running"]
    assert {"starting", "waiting", "drained", "fenced", "refused", "stopped", "bound reached"} <= said.keys()


def test_operators_of_one_process_share_the_answer(driver: StillDriver) -> None:
    other = StillDriver(operator="weather", status=driver_status("starting"))
    names = {dict(labels)["operator"] for _, labels in samples(told(driver, other))}
    assert names == {"updates", "weather"}


def test_a_batch_only_queues_its_metadata_until_metrics_are_requested(
    driver: StillDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = _counted_calls(monkeypatch)
    telemetry = told(driver)
    for batch in range(service_metrics.MAX_PENDING):
        telemetry.note(busy(batch=batch), SECONDS)
    assert counting == []
    telemetry.note(busy(batch=service_metrics.MAX_PENDING), SECONDS)
    assert len(counting) == service_metrics.MAX_PENDING + 1, "nobody asks: they are counted before there are too many"


def _counted_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    real = service_metrics.OperatorMetrics.add

    def add(self: service_metrics.OperatorMetrics, noted: object, seconds: Mapping[str, float]) -> None:
        calls.append(1)
        real(self, noted, dict(seconds))  # type: ignore[arg-type]

    monkeypatch.setattr(service_metrics.OperatorMetrics, "add", add)
    return calls


def test_batches_that_arrive_during_concurrent_requests_are_counted_once(driver: StillDriver) -> None:
    telemetry = told(driver)

    def ask() -> None:
        for _ in range(20):
            telemetry.metrics("")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for batch in range(2_500):
        telemetry.note(busy(batch=batch), SECONDS)
    for thread in threads:
        thread.join()
    assert value(telemetry, "tidegate_batch_seconds_count") == 2_500
