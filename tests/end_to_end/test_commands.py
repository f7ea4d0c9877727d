"""The commands around a running service, each as a process of its own, as a person runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from tests.kill.harness import PARTITIONS, configure, records
from tests.patience import PATIENCE_S, wait_for
from tidegate.devkit.produce_consume import write_all
from tidegate.state.lake.place import Place

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def tidegate(*arguments, expect=0, machine=()):
    """What the command prints; its exit code is the expected one. `machine`: a command that starts it elsewhere."""
    done = subprocess.run(
        [*machine, sys.executable, "-m", "tidegate.cli.main", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout if expect == 0 else done.stdout + done.stderr


def records_in(log):
    """How many records the service has processed, as it says with its last batch."""
    batches = re.findall(r"^\{.*\}\n", log.read_text(), re.MULTILINE)
    return json.loads(batches[-1])["records_in"] if batches else 0


@pytest.mark.spark_reads
def test_run_status_compact_sql_and_a_graceful_stop_by_sigterm(broker, topic, tmp_path, new_lake):
    source, output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    file = configure(tmp_path / "shop.yaml", broker.bootstrap, source, output, lake=new_lake(tmp_path / "lake"))
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

        wait_for(lambda: records_in(tmp_path / "run.log") == 3_000, "all records are in")
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
        assert service.wait(PATIENCE_S) == 0, (tmp_path / "run.log").read_text()
    finally:
        service.kill()

    query = "SELECT cause, (SELECT count(*) FROM updates_buffer) AS held, count(*) AS emitted FROM updates_emissions"
    causes = map(json.loads, tidegate("sql", file, f"{query} GROUP BY cause", "--json").splitlines())
    flushed = next(row for row in causes if row["cause"] == "flush")
    assert flushed["emitted"] == now["metrics"]["held"] > 0
    assert flushed["held"] == 0


def test_a_query_that_spark_refuses_names_the_views(broker, topic, tmp_path, new_lake):
    file = configure(tmp_path / "none.yaml", broker.bootstrap, topic(), topic(), lake=new_lake(tmp_path / "lake"))
    told = tidegate("sql", file, "SELECT * FROM updates_bufer", expect=2)
    assert "updates_bufer" in told
    assert "no operator of the file has a log" in told


def another_machine():
    """What starts a command without this machine's network and name: the lake is all that both have."""
    machine = ["unshare", "--net", "--uts", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*machine, "true"], check=False).returncode:
        pytest.skip("this machine does not let its users start processes in a network of their own")
    return machine


def test_commands_of_a_machine_that_shares_only_the_lake_reach_the_driver(broker, topic, tmp_path):
    source, output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    file = configure(here / "shop.yaml", broker.bootstrap, source, output, lake=Place.of(tmp_path / "lake"))
    remote = configure(there / "shop.yaml", broker.bootstrap, source, output, lake=Place.of(tmp_path / "lake"))
    changed = yaml.safe_load(remote.read_text())
    changed["operators"]["updates"]["buffer"]["max_keys"] = 10
    machine = another_machine()

    log = (tmp_path / "run.log").open("w")
    service = subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli.main", "run", str(file), "--json"], stdout=log, stderr=log
    )
    try:
        write_all({"bootstrap.servers": broker.bootstrap}, source, records(3_000))

        def held():
            [found] = json.loads(tidegate("status", file, "--json")).values()
            return found["metrics"]["held"]

        wait_for(lambda: records_in(tmp_path / "run.log") == 3_000, "all records are in")
        before = held()
        by = "the running driver"
        assert json.loads(tidegate("compact", remote, "--json", machine=machine))["compacted_by"] == by
        remote.write_text(yaml.safe_dump(changed))
        applied = json.loads(tidegate("apply", remote, "--json", machine=machine))
        assert (applied["applied_by"], applied["released"] + applied["held_after"]) == (by, before)
        assert applied["held_after"] == 10 * PARTITIONS < before
        assert json.loads(tidegate("flush", remote, "updates", "--json", machine=machine))["flushed_by"] == by
        assert held() == 0
        tidegate("stop", remote, machine=machine)
        assert service.wait(PATIENCE_S) == 0, (tmp_path / "run.log").read_text()
        assert not list(there.glob("shop/state/**/header")), "the other machine has opened no state"
    finally:
        service.kill()
