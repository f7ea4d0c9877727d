"""Health, readiness and metrics over HTTP."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.runtime.telemetry.conftest import StillDriver, application, driver_status
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.devkit.embedded_broker import free_ports
from tidegate.runtime.telemetry.health import STUCK_AFTER_S
from tidegate.runtime.telemetry.telemetry import Telemetry, telemetry_of

pytestmark = pytest.mark.fast


class Client:
    """Asks one endpoint."""

    def __init__(self, port: int, telemetry: Telemetry) -> None:
        self.port, self.telemetry = port, telemetry

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        """Status, kind and body."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()

    def json(self, path: str) -> tuple[int, Any]:
        """Status and what the body says."""
        status, kind, body = self.get(path)
        assert kind == "application/json"
        return status, json.loads(body)


@pytest.fixture
def client() -> Iterator[Client]:
    [port] = free_ports(1)
    with telemetry_of(application(telemetry={"port": port}, trigger="10s")) as telemetry:
        assert telemetry is not None
        yield Client(port, telemetry)


def watched(client: Client, *drivers: StillDriver) -> Client:
    client.telemetry.watch(drivers)
    return client


def driver(state: str, why: str = "", **more: Any) -> StillDriver:
    return StillDriver(status=driver_status(state, why), **more)


def test_a_file_without_telemetry_has_no_endpoint() -> None:
    with telemetry_of(application()) as telemetry:
        assert telemetry is None


def test_metrics_come_as_text_or_as_openmetrics_as_the_client_prefers(client: Client) -> None:
    status, kind, body = client.get("/metrics")
    assert status == 200 and kind.startswith("text/plain") and "# TYPE tidegate_records_in_total counter" in body
    _, kind, body = client.get("/metrics?x=1", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and body.endswith("# EOF\n")


def test_the_response_to_an_unknown_path_lists_the_known_paths(client: Client) -> None:
    assert client.get("/")[0] == 404
    assert client.get("/")[2] == "/metrics /healthz /readyz\n"


def test_while_spark_starts_a_service_is_alive_and_not_ready(client: Client) -> None:
    assert client.json("/healthz") == (200, {"healthy": True, "operators": {}})
    assert client.json("/readyz") == (503, {"ready": False, "operators": {}})


def test_a_service_is_ready_when_every_operator_processes(client: Client) -> None:
    watched(client, driver("running"), driver("running", operator="weather"))
    status, said = client.json("/readyz")
    assert (status, said["ready"]) == (200, True)
    watched(client, driver("running"), driver("starting", operator="weather"))
    status, said = client.json("/readyz")
    assert (status, said["ready"], said["operators"]["weather"]["rule"]) == (503, False, "starting")


def test_a_service_that_rebuilds_local_states_is_healthy_and_not_ready(client: Client) -> None:
    recovering = driver("running")
    recovering.said["status"] = replace(recovering.said["status"], recovering={3: "there is no local state"})
    watched(client, recovering)
    assert client.json("/healthz")[0] == 200
    status, said = client.json("/readyz")
    assert (status, said["ready"], said["operators"]["updates"]["rule"]) == (503, False, "recovering")


@pytest.mark.parametrize("state", ["waiting", "fenced", "refused", "stopped", "bound reached"])
def test_an_operator_that_does_not_process_shows_the_reason(client: Client, state: str) -> None:
    status, said = watched(client, driver(state, "no Kafka broker answers")).json("/readyz")
    assert status == 503
    assert said["operators"]["updates"] == {"rule": state, "text": "no Kafka broker answers"}


def test_waiting_for_a_broker_is_healthy(client: Client) -> None:
    assert watched(client, driver("waiting", loop_age_s=4.0)).json("/healthz")[0] == 200


def test_a_loop_without_progress_is_unhealthy_unless_it_is_paused(client: Client) -> None:
    """The trigger is 10 s: so much longer may a turn take."""
    assert watched(client, driver("running", loop_age_s=STUCK_AFTER_S + 9)).json("/healthz")[0] == 200
    status, said = watched(client, driver("running", loop_age_s=STUCK_AFTER_S + 11)).json("/healthz")
    assert (status, said["healthy"]) == (503, False)
    assert said["operators"]["updates"] == {"state": "running", "loop_age_s": STUCK_AFTER_S + 11}


def test_an_unrequested_end_is_unhealthy_and_a_drain_is_not(client: Client) -> None:
    assert watched(client, driver("stopped", loop_age_s=1.0)).json("/healthz")[0] == 503
    assert watched(client, driver("drained", loop_age_s=STUCK_AFTER_S * 2)).json("/healthz")[0] == 200


def test_a_port_in_use_is_an_error_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as refused, telemetry_of(application(telemetry={"port": port})):
            pass
    assert f"127.0.0.1:{port}" in str(refused.value.value)
    assert "TIDEGATE_TELEMETRY__PORT" in refused.value.remedy


def test_the_port_is_free_again_when_the_service_has_ended(client: Client) -> None:
    [port] = free_ports(1)
    for _ in range(2):
        with telemetry_of(application(telemetry={"port": port})):
            pass


@pytest.mark.parametrize("wrong", [{}, {"port": 0}, {"port": 70_000}, {"port": 9464, "path": "/metrics"}, 9464])
def test_telemetry_is_checked_with_the_file(wrong: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        application(telemetry=wrong)
    assert all(problem.where.startswith("telemetry") for problem in refused.value.problems)


def test_a_client_that_disconnects_does_not_affect_the_others(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port)) as rude:
        rude.sendall(b"GET /metrics HT")
    assert client.get("/metrics")[0] == 200
