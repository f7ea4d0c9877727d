"""The commands around a running service, each as a process of its own, as a person runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.kill.harness import PARTITIONS, configure, records
from tests.patience import wait_for
from tidegate.devkit.produce_consume import write_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def tidegate(*arguments, expect=0):
    """What the command prints; its exit code is the expected one."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout if expect == 0 else done.stdout + done.stderr


def test_run_status_compact_sql_and_a_graceful_stop_by_sigterm(broker, topic, tmp_path):
    source, output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    file = configure(tmp_path / "shop.yaml", broker.bootstrap, source, output)
    assert json.loads(tidegate("validate", file, "--json"))["operators"] == ["updates"]
    assert json.loads(tidegate("status", file, "--json"))["updates"]["log"] is None

    log = (tmp_path / "run.log").open("w")
    service = subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli.main", "run", str(file), "--json"], stdout=log, stderr=log
    )
    try:
        write_all({"bootstrap.servers": broker.bootstrap}, source, records(3_000))

        def status():
            return json.loads(tidegate("status", file, "--json"))["updates"]

        wait_for(
            lambda: sum(p.get("records_in", 0) for p in status().get("partitions", [])) == 3_000, "all records are in"
        )
        now = status()
        assert [partition["lag"] for partition in now["partitions"]] == [0] * PARTITIONS
        assert now["metrics"]["records_in"] == 3_000
        assert now["metrics"]["lateness_max"] > 0

        asked = json.loads(tidegate("compact", file, "--json"))
        assert asked == {"operator": "updates", "compacted_by": "the running driver"}
        assert status()["action"] == "compaction"
        asked = json.loads(tidegate("flush", file, "updates", "--json"))
        assert asked == {"operator": "updates", "flushed_by": "the running driver"}
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0, (tmp_path / "run.log").read_text()
    finally:
        service.kill()
    batches = [json.loads(line) for line in (tmp_path / "run.log").read_text().splitlines() if line.startswith("{")]
    assert batches[-1]["records_in"] == 3_000

    query = "SELECT cause, (SELECT count(*) FROM updates_buffer) AS held, count(*) AS emitted FROM updates_emissions"
    causes = map(json.loads, tidegate("sql", file, f"{query} GROUP BY cause", "--json").splitlines())
    flushed = next(row for row in causes if row["cause"] == "flush")
    assert flushed["emitted"] == now["metrics"]["held"] > 0
    assert flushed["held"] == 0


def test_a_query_that_spark_refuses_names_the_views(broker, topic, tmp_path):
    file = configure(tmp_path / "none.yaml", broker.bootstrap, topic(), topic())
    told = tidegate("sql", file, "SELECT * FROM updates_bufer", expect=2)
    assert "updates_bufer" in told
    assert "no operator of the file has a log" in told
