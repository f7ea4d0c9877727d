"""The lock by which commands know that a driver runs here, and what they ask of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Timer

import pytest

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.requests import Requests

pytestmark = pytest.mark.fast


def test_a_driver_is_seen_while_it_runs(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    assert not command.driven()
    with driver.driving():
        assert command.driven()
    assert not command.driven()


def test_looking_for_a_driver_leaves_no_trace(tmp_path: Path) -> None:
    Requests(tmp_path / "state").driven()
    assert not (tmp_path / "state").exists()


def test_after_a_takeover_the_newer_driver_takes_the_lock_once_it_is_free(tmp_path: Path) -> None:
    old, new, command = (Requests(tmp_path) for _ in range(3))
    with new.driving():
        with old.driving():  # cannot: the new one has it
            assert not old.drive()
        assert new.drive()
    with old.driving(), new.driving():
        assert not new.drive()
        old._let_go()
        assert new.drive()
        assert command.driven()


def test_a_deleted_state_folder_does_not_hide_the_driver_for_long(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path / "state"), Requests(tmp_path / "state")
    with driver.driving():
        shutil.rmtree(tmp_path / "state")
        assert not command.driven()
        assert driver.pending() == []
        assert driver.drive()
        assert command.driven()


def test_what_is_asked_waits_until_the_driver_has_done_it(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    seen = []

    def answer() -> None:
        seen.extend(driver.pending())
        driver.done("flush")

    with driver.driving():
        timer = Timer(0.2, answer)
        timer.start()
        command.ask("flush", timeout_s=30)
        timer.join()
    assert seen == ["flush"]


def test_a_driver_that_ends_meanwhile_is_told_and_the_request_is_taken_back(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    with pytest.raises(EngineError, match="has not done it: compact"):
        command.ask("compact", timeout_s=30)
    assert driver.pending() == []


def test_who_asked_for_what_is_refused_is_told_why_once(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)

    def refuse() -> None:
        driver.refuse("apply", "topic nowhere does not exist")
        driver.done("apply")

    with driver.driving():
        timer = Timer(0.2, refuse)
        timer.start()
        with pytest.raises(UserError, match="refused it: apply") as refused:
            command.ask("apply", timeout_s=30)
        timer.join()
        assert refused.value.value == "topic nowhere does not exist"
        timer = Timer(0.2, driver.done, ["apply"])
        timer.start()
        command.ask("apply", timeout_s=30)
        timer.join()


def test_a_refusal_that_nobody_waited_for_is_not_the_answer_to_the_next(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    (tmp_path / "requests").mkdir()
    driver.refuse("apply", "the former one")
    with driver.driving():
        timer = Timer(0.2, driver.done, ["apply"])
        timer.start()
        command.ask("apply", timeout_s=30)
        timer.join()
