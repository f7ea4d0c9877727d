"""A running service as Prometheus, an orchestrator and a collector of lines see it."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from threading import Event

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.test_commands import tidegate, wait_for
from tests.kill.harness import PARTITIONS, configure, records
from tests.lakes import delta_table
from tests.patience import PATIENCE_S
from tests.runtime.telemetry.conftest import CANARY
from tidegate.devkit.embedded_broker import free_ports
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.telemetry.log_lines import JsonLines
from tidegate.runtime.telemetry.telemetry import Telemetry

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SECRET = f"""
control: postgresql+psycopg://tidegate:{CANARY}-control@127.0.0.1:1/control
log: json
"""


def get(port, path):
    """Status and body; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def summed(text, name):
    """The sum of a metric's samples; None where it has none."""
    families = text_string_to_metric_families(text)
    values = [sample.value for family in families for sample in family.samples if sample.name == name]
    return sum(values) if values else None


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def test_the_endpoint_reports_health_readiness_and_metrics_and_no_secret(broker, topic, tmp_path, new_lake):
    [port] = free_ports(1)
    source, output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    lake = new_lake(tmp_path / "shop" / "lake")
    file = configure(tmp_path / "shop.yaml", broker.bootstrap, source, output, lake=lake)
    text = file.read_text().replace("kafka:", f"kafka:\n  ssl.key.password: {CANARY}-key", 1)
    file.write_text(f"{text}{SECRET}telemetry: {{port: {port}}}\n")
    told = tmp_path / "service.log"
    with told.open("w") as log:
        command = [sys.executable, "-m", "tidegate.cli.main", "run", str(file), "--verbose"]
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: get(port, "/healthz")[0] == 200, "it lives")
        assert get(port, "/readyz")[0] == 503, "Spark has not started yet"
        wait_for(lambda: get(port, "/readyz")[0] == 200, "it is ready")
        write_all({"bootstrap.servers": broker.bootstrap}, source, records(3_000))
        wait_for(lambda: summed(get(port, "/metrics")[1], "tidegate_records_in_total") == 3_000, "all is read")
        assert "telemetry.port" in tidegate("run", file, expect=2), "another service has the port"
        tidegate("compact", file)
        wait_for(lambda: summed(get(port, "/metrics")[1], "tidegate_compaction_seconds_count") == 1, "compacted")
        seen, status = get(port, "/metrics")[1], tidegate("status", file, "--json")
        doctored = tidegate("doctor", file, "--json", expect=1)
        assert "the control database failed" in doctored
        assert '"about": "updates"' not in doctored and '"about": "kafka"' not in doctored, doctored
        ready = get(port, "/readyz")[1]
        service.terminate()
        assert service.wait(PATIENCE_S) == 0, told.read_text()
    finally:
        service.kill()
        service.wait()

    figures = json.loads(status)["updates"]["metrics"]
    assert summed(seen, "tidegate_consumer_lag_records") == 0
    assert summed(seen, "tidegate_ledger_imbalance_records") == 0
    assert summed(seen, "tidegate_emitted_records_total") == figures["emitted"] > 0
    assert summed(seen, "tidegate_lateness_seconds_sum") == pytest.approx(figures["lateness_sum"] / 1_000)
    assert summed(seen, "tidegate_buffer_records") == figures["held"] == summed(seen, "tidegate_held_records")
    assert summed(seen, "tidegate_stream_time_behind_seconds") > PARTITIONS * 365 * 86_400, "the records are of 2023"
    assert summed(seen, "tidegate_commit_seconds_count") == summed(seen, "tidegate_batch_seconds_count") > 0
    assert summed(seen, "tidegate_publication_seconds_sum") > 0
    table = delta_table(lake / "updates")
    assert summed(seen, "tidegate_live_files") == len(table.file_uris())

    lines = lines_of(told)
    assert [line["operator"] for line in lines if line["message"] == "updates: ready"] == ["updates"]
    assert any("batch" in line and line["operator"] == "updates" for line in lines)
    assert any("continues without the control database" in line["message"] for line in lines)
    conditions = (tmp_path / "shop" / "state").rglob("condition.json")
    shown = [seen, status, doctored, ready, told.read_text(), *(path.read_text() for path in conditions)]
    assert len(shown) == 6
    assert not [each for each in shown if CANARY in each]


def test_a_recovered_state_is_counted_and_logged_with_its_partition(world, caplog):
    here = world(until={"time_limit": "1h"})
    here.feed([(2, b"a", b"x", 1_000)])
    here.run()
    shutil.rmtree(here.application.state)
    here.feed([(2, b"a", b"y", 2_000)])
    telemetry = Telemetry(here.application)
    driver = OperatorDriver(
        Wiring(spark=here.spark, application=here.application, name=here.name, listener=telemetry.note)
    )
    telemetry.watch([driver])
    with caplog.at_level(logging.INFO, "tidegate"):
        driver.run(Event(), until_caught_up=True)
    [line] = [record for record in caplog.records if "local state" in record.getMessage()]
    said = json.loads(JsonLines().format(line))
    assert (said["operator"], said["partition"], said["batch"]) == ("updates", 2, driver.claim.operator.newest.batch)
    text = telemetry.metrics("").body.decode()
    assert summed(text, "tidegate_recovery_seconds_count") == 1
    assert json.loads(telemetry.readyz("").body)["operators"]["updates"]["rule"] == "no driver", "it has drained"
    assert telemetry.healthz("").status == 200
