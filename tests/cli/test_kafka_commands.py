"""`tidegate topics`, `produce` and `consume` against the embedded broker, and `kafka` from start to stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.conftest import NewTopic
from tidegate.cli.main import main
from tidegate.devkit.embedded_broker import Broker

pytestmark = pytest.mark.broker


def test_a_topic_is_created_listed_and_described(broker: Broker) -> None:
    created = _run(broker, ["topics", "create", "cli-made", "--partitions", "3", "--config", "max.message.bytes=2000"])
    assert created.exit_code == 0
    assert "cli-made: 3 partitions" in created.stdout
    assert "cli-made" in json.loads(_run(broker, ["topics", "list", "--json"]).stdout)["topics"]
    (described,) = json.loads(_run(broker, ["topics", "describe", "cli-made", "--json"]).stdout)["topics"]
    assert described["partitions"] == 3
    assert described["configs"] == {"max.message.bytes": "2000", "retention.ms": "-1"}


def test_a_missing_topic_gives_exit_code_2_and_the_command_that_creates_it(broker: Broker) -> None:
    refused = _run(broker, ["topics", "describe", "absent"])
    assert refused.exit_code == 2
    assert "tidegate topics create absent" in refused.stderr


def test_produced_lines_are_consumed_and_can_be_produced_again(broker: Broker, topic: NewTopic) -> None:
    first, second = topic(2), topic(2)
    lines = [
        '{"partition":0,"offset":0,"timestamp":7,"key":"a","value":"1","headers":[{"key":"h","value":"x"}]}',
        '{"partition":0,"offset":1,"timestamp":3,"key":"a","value":null,"headers":[]}',
    ]
    assert _run(broker, ["produce", first], "\n".join(lines)).stdout == "2 records sent, 0 invalid lines\n"
    consumed = _run(broker, ["consume", first])
    assert consumed.stdout.splitlines() == lines
    assert _run(broker, ["produce", second, "--json"], consumed.stdout).stdout == '{"sent": 2, "refused": []}\n'
    assert _run(broker, ["consume", second, "--max", "1", "--json"]).stdout.splitlines() == lines[:1]


def test_a_file_is_produced_and_invalid_lines_give_exit_code_1(broker: Broker, topic: NewTopic, tmp_path: Path) -> None:
    name, file = topic(), tmp_path / "records.jsonl"
    file.write_text('{"key": "a"}\noops\n{"key": "b"}\n')
    result = _run(broker, ["produce", name, str(file)])
    assert (result.exit_code, result.stdout) == (1, "2 records sent, 1 invalid lines\n")
    assert result.stderr.startswith("line 2: not JSON")
    assert len(_run(broker, ["consume", name]).stdout.splitlines()) == 2


def test_a_broker_is_started_found_and_stopped_and_keeps_its_topics(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path), "--json"]
    started = json.loads(_invoke(["kafka", "start", "--port", "19471", *data]).stdout)
    try:
        assert started["running"] and started["bootstrap"] == "127.0.0.1:19471"
        assert json.loads(_invoke(["kafka", "status", *data]).stdout) == started
        assert json.loads(_invoke(["kafka", "start", *data]).stdout) == started
        assert _invoke(["topics", "create", "kept", "--bootstrap", "127.0.0.1:19471"]).exit_code == 0
    finally:
        assert json.loads(_invoke(["kafka", "stop", *data]).stdout)["running"] is False
    assert json.loads(_invoke(["kafka", "status", *data]).stdout)["running"] is False
    again = json.loads(_invoke(["kafka", "start", "--port", "19472", *data]).stdout)
    try:
        assert _invoke(["topics", "list", "--bootstrap", again["bootstrap"]]).stdout == "kept\n"
    finally:
        _invoke(["kafka", "stop", *data])


def _run(broker: Broker, arguments: list[str], stdin: str | None = None) -> Result:
    return _invoke([*arguments, "--bootstrap", broker.bootstrap], stdin)


def _invoke(arguments: list[str], stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, catch_exceptions=False)
