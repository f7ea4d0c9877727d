"""`tidegate doctor` as a person runs it, against an unavailable broker and against a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.runtime.telemetry.conftest import CANARY, RAW
from tidegate.cli.main import main
from tidegate.devkit.embedded_broker import Broker, free_ports
from tidegate.runtime.kafka.inspection import inspect
from tidegate.runtime.kafka.topics import create_topic


def written(folder: Path, **more: Any) -> Path:
    """A configuration file."""
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(RAW | {"control": None} | more))
    return file


def doctor(file: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", str(file), *options], catch_exceptions=False)


def findings(file: Path) -> list[dict[str, str]]:
    """What the command finds wrong with anything but the machine that the test runs on."""
    told: dict[str, Any] = json.loads(doctor(file, "--json").stdout)
    return [finding for finding in told["findings"] if finding["about"] not in ("machine", "lake", "state")]


@pytest.mark.fast
@pytest.mark.usefixtures("impatient")
def test_an_unavailable_broker_is_a_finding_not_a_failure(tmp_path: Path) -> None:
    [port] = free_ports(1)
    file = written(tmp_path, kafka={"bootstrap.servers": f"127.0.0.1:{port}"})
    ran = doctor(file)
    assert ran.exit_code == 1
    assert f"kafka: no Kafka broker answers at 127.0.0.1:{port}\n" in ran.stdout
    assert "  remedy: start it (`tidegate kafka start`)" in ran.stdout
    assert "checking the broker and its topics" in ran.stderr


@pytest.mark.fast
@pytest.mark.usefixtures("impatient")
def test_an_invalid_file_is_a_usage_error_not_a_finding(tmp_path: Path) -> None:
    assert doctor(written(tmp_path, lake=None)).exit_code == 2
    assert doctor(tmp_path / "none.yaml").exit_code == 2


@pytest.mark.fast
@pytest.mark.usefixtures("impatient")
def test_no_secret_of_the_file_is_shown(tmp_path: Path) -> None:
    file = written(tmp_path, control=RAW["control"])
    for options in ((), ("--json",)):
        told = doctor(file, *options)
        assert told.exit_code == 1
        assert "control" in told.output, "the database does not answer, and that is told"
        assert CANARY not in told.output


@pytest.mark.broker
def test_a_correct_application_is_healthy(broker: Broker, topic: Any, tmp_path: Path) -> None:
    operator = {"kind": "suppression", "input": topic(2), "output": topic(2), "until": {"time_limit": "1h"}}
    file = written(tmp_path, kafka={"bootstrap.servers": broker.bootstrap}, operators={"updates": operator})
    assert findings(file) == []


@pytest.mark.broker
def test_faults_of_real_topics_are_each_found_with_the_remedy(broker: Broker, topic: Any, tmp_path: Path) -> None:
    """The input is compacted, short-lived and dated by arrival; the first output is narrow, the second is not there."""
    wrong = {"cleanup_policy": "compact,delete", "retention_ms": "60000", "message_timestamp_type": "LogAppendTime"}
    source, narrow = topic(4, **wrong), topic(2, max_message_bytes="1000")
    operator = {"kind": "suppression", "input": source, "until": {"time_limit": "1h"}}
    operators = {"a": operator | {"output": narrow}, "b": operator | {"output": "not-there"}}
    file = written(tmp_path, kafka={"bootstrap.servers": broker.bootstrap}, operators=operators)
    remedies = {(finding["about"], finding["remedy"]) for finding in findings(file)}
    of_input = {
        f"set retention.ms=-1 for topic {source}, or to more than the longest outage of the service",
        f"set cleanup.policy=delete for topic {source}",
        f"set message.timestamp.type=CreateTime for topic {source}, "
        "or name the field with the event time: timestamp: {field: ...}",
    }
    of_output = {f"give {narrow} at least 4 partitions"}
    of_output |= {f"set max.message.bytes=1048588 for topic {narrow}, and more for a join"}
    missing = {"tidegate topics create not-there --partitions 4"}
    assert remedies == {("a", each) for each in of_input | of_output} | {("b", each) for each in of_input | missing}


@pytest.mark.broker
def test_settings_include_the_broker_s_defaults(broker: Broker) -> None:
    options = {"bootstrap.servers": broker.bootstrap}
    create_topic(options, "doctor-settings", 1)
    seen = inspect(options, ["doctor-settings", "not-there"])
    assert seen.settings["transaction.max.timeout.ms"] == "900000"
    assert seen.topics.keys() == {"doctor-settings"}
    assert seen.topics["doctor-settings"].settings["retention.ms"] == "-1"
    assert seen.topics["doctor-settings"].starts == {0: 0}
