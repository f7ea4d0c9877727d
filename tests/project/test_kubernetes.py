"""The files for Kubernetes: they follow its schemas, and the configuration in them is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tidegate.runtime.configuration.application import application_of

pytestmark = pytest.mark.fast

FILE = Path(__file__).resolve().parents[2] / "infra" / "kubernetes" / "tidegate.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
BY_KIND = {each["kind"]: each for each in OBJECTS}
FILES: dict[str, str] = BY_KIND["ConfigMap"]["data"]
EXECUTOR: dict[str, Any] = yaml.safe_load(FILES["executor.yaml"])


@pytest.mark.parametrize("described", [*OBJECTS, EXECUTOR], ids=lambda described: described["kind"])
def test_each_object_follows_its_schema(described: dict[str, Any]) -> None:
    kubernetes_validate.validate(described, kubernetes_validate.latest_version(), strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    wrong = {**EXECUTOR, "spec": {**EXECUTOR["spec"], "volume": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_the_configuration_is_one_and_its_executors_have_a_state_folder_of_their_own() -> None:
    application = application_of(yaml.safe_load(FILES["flights.yaml"]))
    assert application.spark.master.startswith("k8s://")
    [container] = EXECUTOR["spec"]["containers"]
    folders = {each["name"]: each["value"] for each in container["env"]}
    assert folders["TIDEGATE_WORKER_STATE"] in {mount["mountPath"] for mount in container["volumeMounts"]}
    conf = application.spark.conf
    assert conf["spark.kubernetes.container.image"] == container["image"]
    assert conf["spark.kubernetes.authenticate.serviceAccountName"] == BY_KIND["ServiceAccount"]["metadata"]["name"]


def test_the_driver_starts_with_the_files_that_it_names_and_is_asked_for_its_health() -> None:
    pod = BY_KIND["Deployment"]["spec"]["template"]["spec"]
    [driver] = pod["containers"]
    folder, name = driver["command"][2].rsplit("/", 1)
    assert name in FILES
    assert {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}["configuration"] == folder
    assert driver["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert driver["readinessProbe"]["httpGet"]["path"] == "/readyz"
    port = application_of(yaml.safe_load(FILES["flights.yaml"])).telemetry
    assert port is not None
    assert [each["containerPort"] for each in driver["ports"]] == [port.port]
