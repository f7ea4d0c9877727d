"""The embedded broker: its errors if it cannot start, and whether it knows that it is running."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tidegate.contracts.errors import EngineError, UserError
from tidegate.devkit import embedded_broker
from tidegate.devkit.embedded_broker import Broker, free_ports
from tidegate.runtime.install import paths


@pytest.mark.fast
def test_missing_jars_are_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="jars of the Kafka broker are missing") as refused:
        Broker.start(tmp_path / "data", tmp_path)
    assert "make setup" in refused.value.remedy


@pytest.mark.fast
def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-0.jar").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="another program uses") as refused:
            Broker.start(tmp_path / "data", tmp_path, port=port)
    assert refused.value.value == f"127.0.0.1:{port}"
    assert "--port" in refused.value.remedy


@pytest.mark.fast
def test_a_folder_that_cannot_be_formatted_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-0.jar").touch()
    with pytest.raises(EngineError, match="could not be formatted") as failed:
        Broker.start(tmp_path / "data", tmp_path)
    assert "kafka.tools.StorageTool" in failed.value.value


@pytest.mark.fast
def test_no_broker_runs_on_a_folder_that_never_had_one(tmp_path: Path) -> None:
    assert Broker.running(tmp_path / "absent") is None


@pytest.mark.broker
def test_a_broker_that_dies_during_its_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    Broker.start(tmp_path, paths.jars("broker")).stop()
    meta = tmp_path / "topics" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(EngineError, match="ended during its start") as failed:
        Broker.start(tmp_path, paths.jars("broker"))
    assert "node" in failed.value.value.lower()
    assert Broker.running(tmp_path) is None


@pytest.mark.broker
def test_a_broker_whose_port_is_taken_before_it_listens_starts_on_another(monkeypatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = iter([[taken.getsockname()[1]], free_ports(1), free_ports(1), free_ports(1)])
        monkeypatch.setattr(embedded_broker, "free_ports", lambda count, other_than=None: next(chosen))
        with Broker.start(tmp_path, paths.jars("broker")) as started:
            assert started.port != taken.getsockname()[1]
            assert Broker.running(tmp_path).port == started.port
    assert next(chosen, None) is None


@pytest.mark.broker
def test_the_broker_of_another_program_on_its_port_is_not_taken_for_it(broker, monkeypatch, tmp_path: Path) -> None:
    chosen = iter([[broker.port], free_ports(1), free_ports(1), free_ports(1)])
    monkeypatch.setattr(embedded_broker, "free_ports", lambda count, other_than=None: next(chosen))
    with Broker.start(tmp_path, paths.jars("broker")) as started:
        assert started.port != broker.port


@pytest.mark.broker
def test_a_folder_in_use_is_refused_and_its_broker_found(broker: Broker) -> None:
    with pytest.raises(UserError, match="already runs on this data folder"):
        Broker.start(broker.data, paths.jars("broker"))
    found = Broker.running(broker.data)
    assert found is not None
    assert (found.pid, found.bootstrap) == (broker.pid, broker.bootstrap)


@pytest.mark.broker
def test_a_killed_broker_does_not_count_as_running_despite_its_files(tmp_path: Path) -> None:
    broker = Broker.start(tmp_path, paths.jars("broker"))
    os.kill(broker.pid, signal.SIGKILL)
    os.waitpid(broker.pid, 0)
    assert (tmp_path / "broker.json").exists()
    assert Broker.running(tmp_path) is None
