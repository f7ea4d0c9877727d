"""Faults in every part of an application at once: one command finds each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.lakes import lake_at
from tests.runtime.miniature import NAME, application
from tests.state.logs import meta
from tidegate.cli.main import main
from tidegate.contracts.log_schema import log_schema
from tidegate.control import instances, ledger, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import Heartbeat
from tidegate.control.ledger import OperatorKey
from tidegate.devkit.embedded_broker import free_ports
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import load
from tidegate.runtime.doctor.diagnosis import diagnose
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.local.local_state import LocalState

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("impatient")]

FAULTS = {
    ("machine", "jars are missing"),
    ("machine", "Java does not run: No such file or directory"),
    ("kafka", "no Kafka broker answers at 127.0.0.1:{port}"),
    (NAME, "the log has not been compacted for a long time"),
    (NAME, "a local state is damaged: its header cannot be read"),
    (NAME, "local state of an earlier log is left over"),
    (NAME, "the last driver on this machine has ended: stopped"),
    (NAME, "a driver sends no heartbeats"),
}


def plant(folder: Path) -> None:
    """A log that was never compacted, a damaged state of a former table, a driver that failed, one that is silent."""
    given = application(folder)
    schema = log_schema(operator_for(given.operators[NAME]).columns)
    log = OperatorLog.open(lake_at(given.lake.folder / NAME), NAME, schema, create=True)
    log.commit(meta(log, 3_000, operator=NAME), [])
    with LocalState.lock(given.state / "app", 0, operator=NAME, table_id="former", token=(1, 1)) as local:
        local.begin(1, 1, "a")
    (local.folder / "header").write_bytes(b"\xff" * 100)
    DriverStatusFile(given.state / "app" / NAME).write("stopped", "the disk failed")
    database, key = Database(Address(f"sqlite:///{folder}/control.db")), OperatorKey("app", NAME)
    revisions.prepare(database)
    silent = Heartbeat(instance="i", host="node1", pid=7, epoch=1, state="running", started_ms=1, heartbeat_ms=2)
    with database.begin() as connection:
        ledger.upsert_operator(connection, key, lake="lake", kind="suppression")
        instances.record_heartbeat(connection, key, silent)


def configure(folder: Path, port: int) -> Path:
    """The file of the application."""
    file = folder / "app.yaml"
    operator = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}}
    content = {"application": "app", "lake": "lake", "keep_output": "forever", "operators": {NAME: operator}}
    file.write_text(yaml.safe_dump(content | {"kafka": {"bootstrap.servers": f"127.0.0.1:{port}"}}))
    return file


def test_doctor_checks_every_part_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    plant(tmp_path)
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "no home"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    ran = CliRunner().invoke(main, ["doctor", str(configure(tmp_path, port)), "--json"], catch_exceptions=False)
    told = json.loads(ran.stdout)
    found = {(finding["about"], finding["problem"]) for finding in told["findings"]}
    assert (ran.exit_code, told["healthy"]) == (1, False)
    assert {(about, problem.format(port=port)) for about, problem in FAULTS} <= found
    assert all(finding["remedy"] for finding in told["findings"])


def test_looking_up_changes_nothing(tmp_path: Path) -> None:
    plant(tmp_path)
    given = load(configure(tmp_path, free_ports(1)[0]))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert diagnose(given)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
