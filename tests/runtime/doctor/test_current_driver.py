"""Who drives an operator, as `tidegate status` and `tidegate doctor` show it from any machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.living_driver import LEASE
from tests.runtime.miniature import NAME, application
from tidegate.contracts.errors import Unavailable
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import status as status_module
from tidegate.runtime.doctor.current_driver import CHECKS, CLOCKS_DIFFER_MS, collect, current_driver
from tidegate.runtime.doctor.status import application_status, operator_status
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state import driver_leases
from tidegate.state.lake.opening import open_lake
from tidegate.state.lease_decisions import DriverLease
from tidegate.state.local.instance import holding_instance

pytestmark = pytest.mark.fast


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application without a broker, which is not waited for."""
    monkeypatch.setattr(status_module, "_broker_error", lambda _application: "no broker answers")
    found = application(tmp_path)
    (tmp_path / "lake" / NAME).mkdir(parents=True)
    return found


def put(given: Application, lease: DriverLease, *, silent_ms: int = 0) -> None:
    """The lease was written so long ago."""
    lake = open_lake(given.lake / NAME)
    driver_leases.put(lake, lease)
    file = (given.lake / NAME).folder / driver_leases.key_of(lease.epoch)
    written = file.stat().st_mtime - silent_ms / 1_000
    os.utime(file, (written, written))


def problems(given: Application) -> list[str]:
    return [f"{found.problem}: {found.value}" for each in collect(given) for check in CHECKS for found in check(each)]


def test_an_operator_without_a_lease_has_no_driver(given: Application) -> None:
    assert current_driver(given, NAME) is None
    assert problems(given) == []
    status = operator_status(given, NAME)
    assert (status["driver"], status["why"]["rule"]) == (None, "no driver")


def test_a_driver_on_another_machine_is_shown_with_its_place(given: Application) -> None:
    put(given, LEASE)
    DriverStatusFile(given.state / "app" / NAME).write("drained")
    status = operator_status(given, NAME)
    assert (status["driver"]["host"], status["driver"]["process"], status["driver"]["since"]) == ("head", 77, 1)
    assert status["why"] == {"rule": "running", "text": "a driver runs elsewhere: process 77 on head"}
    assert problems(given) == []


def test_a_driver_on_this_machine_is_explained_by_what_it_has_written(given: Application) -> None:
    state = given.state / "app" / NAME
    with holding_instance(state) as instance:
        put(given, replace(LEASE, instance=instance))
        DriverStatusFile(state).write("waiting", "for a broker")
        assert operator_status(given, NAME)["why"] == {"rule": "waiting", "text": "for a broker"}


def test_a_lake_that_does_not_answer_is_told_in_the_status_of_each_operator(
    given: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_lake: object, _version: object) -> bool:
        raise Unavailable("the store does not answer", value=NAME)

    monkeypatch.setattr(status_module, "has_version", away)
    found = application_status(given)[NAME]
    assert (found["log"], found["note"]) == (None, "the lake does not answer")
    assert found["why"]["rule"] == "lake away"
    assert "the store does not answer" in found["why"]["text"]


def test_a_driver_that_was_killed_on_this_machine_is_no_driver_at_once(given: Application) -> None:
    with holding_instance(given.state / "app" / NAME) as instance:
        put(given, replace(LEASE, instance=instance))
    assert current_driver(given, NAME) is None
    assert "process 77 on head" in problems(given)[0]


def test_a_driver_that_no_longer_renews_its_lease_is_a_finding(given: Application) -> None:
    silent_ms = 6_000 + CLOCKS_DIFFER_MS + 5_000
    put(given, LEASE, silent_ms=silent_ms)
    assert current_driver(given, NAME) is None
    [found] = problems(given)
    assert found.startswith("the driver has ended without deleting its lease")
    assert "process 77 on head, silent for 21s" in found
