"""The guarantees of the local stack's files, without a Docker engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.contracts.event_time import parse_size_bytes
from tidegate.devkit.demo import checks
from tidegate.devkit.demo.topics import topics_of
from tidegate.runtime.configuration.application import (
    Application,
    application_of,
    load,
    settings_of,
)
from tidegate.runtime.telemetry.metric_definitions import METRICS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TIDEGATE = {"suppression", "table-history", "stream-table-join", "windowed-aggregation", "pipeline"}
ONCE = {"topics", "demo"}
"""They do their work and end."""

SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
DASHBOARD = json.loads((ROOT / "infra/stack/grafana/dashboards/tidegate.json").read_text())

pytestmark = pytest.mark.fast

each_service = pytest.mark.parametrize("name", SERVICES)


def settings(file: str) -> dict[str, str]:
    """The lines NAME=VALUE of a file."""
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def application() -> Application:
    """The configuration that the stack runs."""
    return load(ROOT / "infra/stack/flights.yaml")


def queries() -> list[str]:
    """What the dashboard asks Prometheus."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_file_fulfils_the_compose_specification() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "docker-compose.yml",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_each_kind_of_operator_has_its_own_container() -> None:
    kinds = {operator.kind for operator in application().operators.values()}
    commands = {SERVICES[name]["command"][2] for name in TIDEGATE}
    assert commands == {f"services.{kind}" for kind in kinds}
    assert {SERVICES[name]["image"] for name in TIDEGATE} == {"tidegate:stack"}


@pytest.mark.parametrize("name", sorted({*SERVICES} - ONCE))
def test_every_lasting_container_has_a_health_check_and_restarts(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@each_service
def test_every_container_is_limited(name: str) -> None:
    assert {"mem_limit", "cpus", "pids_limit"} <= {*SERVICES[name]}


@each_service
def test_no_container_runs_as_root_or_can_become_it(name: str) -> None:
    assert SERVICES[name]["user"] not in ("root", "0", 0)
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


@each_service
def test_every_dependency_of_a_container_has_a_reachable_condition(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        ends = other in ONCE
        assert how == {"condition": "service_completed_successfully" if ends else "service_healthy"}


@each_service
def test_only_this_machine_reaches_the_ports(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


def test_passwords_occur_only_in_the_sample() -> None:
    sample, text = settings(".env.example"), (ROOT / "docker-compose.yml").read_text()
    secrets = {name: value for name, value in sample.items() if "PASSWORD" in name}
    assert set(re.findall(r"\$\{(\w*PASSWORD\w*)", text)) == {*secrets}
    given = [each.get("environment", {}) for each in SERVICES.values()]
    told = {value for variables in given for name, value in variables.items() if "PASSWORD" in name}
    assert told == {f"${{{name}:?}}" for name in secrets}
    tracked = subprocess.run(
        ["grep", "-rlF", "-e", secrets["POSTGRES_PASSWORD"], "infra", "services", "docs", "docker-compose.yml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tracked.stdout == ""


def test_git_ignores_the_settings_of_a_machine() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_sample_has_every_variable_of_the_file() -> None:
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert used | {"COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES"} == {*settings(".env.example")}


def test_no_variable_has_a_default_besides_the_sample_s() -> None:
    assert re.findall(r"\$\{\w+:?-", (ROOT / "docker-compose.yml").read_text()) == []


def test_services_and_worker_share_lake_and_state() -> None:
    mounts = [{*SERVICES[name]["volumes"]} for name in (*TIDEGATE, "spark-worker")]
    assert all(mount == mounts[0] for mount in mounts)
    targets = {mount.split(":")[1] for mount in mounts[0]}
    assert {str(application().lake), str(application().state)} <= targets


def test_the_worker_offers_one_core_to_each_service() -> None:
    assert int(SERVICES["spark-worker"]["environment"]["SPARK_WORKER_CORES"]) == len(TIDEGATE)
    assert application().spark.conf["spark.cores.max"] == "1"


def test_the_worker_has_memory_for_the_executor_of_each_service() -> None:
    worker = settings(".env.example")["SPARK_WORKER_MEMORY"]
    executor = application().spark.conf["spark.executor.memory"]
    assert parse_size_bytes(f"{executor[:-1]}MiB") * len(TIDEGATE) <= parse_size_bytes(f"{worker[:-1]}GiB")


def test_the_stack_runs_the_operators_of_the_demo() -> None:
    stack, demo = application(), checks.original()
    settings = [{name: settings_of(each) for name, each in run.operators.items()} for run in (stack, demo)]
    assert settings[0] == settings[1]
    assert topics_of(stack) == topics_of(demo)


def test_every_topic_that_an_operator_names_is_created() -> None:
    ends = {"input": "in", "output": "out", "dead_letters": "refused"}
    updates = {"kind": "suppression", **ends, "until": {"time_limit": "1h"}}
    kafka = {"bootstrap.servers": "kafka:9092"}
    raw = {
        "application": "a",
        "lake": "lake",
        "keep_output": "forever",
        "kafka": kafka,
        "operators": {"updates": updates},
    }
    assert topics_of(application_of(raw)) == ["in", "out", "refused"]


def test_prometheus_watches_every_service() -> None:
    watched = yaml.safe_load((ROOT / "infra/stack/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in watched for part in job["static_configs"] for target in part["targets"]}
    telemetry = application().telemetry
    assert telemetry is not None
    assert targets == {f"{name}:{telemetry.port}" for name in TIDEGATE}


def test_the_dashboard_uses_existing_metrics() -> None:
    known = {metric.name + suffix for metric in METRICS for suffix in SUFFIXES.get(metric.kind, ("",))}
    asked = {name for query in queries() for name in re.findall(r"tidegate_\w+", query)}
    assert len(asked) > 15
    assert asked <= known


def test_every_panel_says_what_it_shows() -> None:
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in DASHBOARD["panels"])


def test_grafana_finds_the_dashboard_and_its_source() -> None:
    folder = ROOT / "infra/stack/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/tidegate.yaml").read_text())["providers"]
    assert f"./infra/stack/grafana/dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
