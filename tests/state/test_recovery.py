"""Recovery and compaction with a real log: whatever happened to the local state, the same state is recovered."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.state.logs import MiniDriver
from tests.state.tally_operator import MemoryStorage, Tally
from tidegate.contracts.errors import Unavailable
from tidegate.contracts.operator import Storage
from tidegate.contracts.records import Records, Row
from tidegate.state.delta_log.data_files import DataFile, Part
from tidegate.state.local import recovery
from tidegate.state.local.machine import ThisMachine
from tidegate.state.local.recovery import _turns
from tidegate.state.protocol_decisions import RecoveryMethod

pytestmark = pytest.mark.fast

RECORDS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=5)
EVENTS = st.one_of(
    st.tuples(st.just("batch"), RECORDS),
    st.tuples(st.just("failed attempt"), RECORDS),
    st.tuples(st.sampled_from(["compaction", "local state lost", "local state set aside", "brought back"]), st.none()),
)


def applied(model: dict[int, int], records: list[tuple[int, bool]]) -> dict[int, int]:
    """The oracle: a dict."""
    after = dict(model)
    for key, kept in records:
        after[key] = after.get(key, 0) + 1 if kept else 0
    return {key: count for key, count in after.items() if count}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(EVENTS, max_size=8))
def test_any_damage_of_local_state_recovers_the_committed_state(
    events: list[tuple[str, list[tuple[int, bool]] | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    driver, model = MiniDriver(tmp_path_factory.mktemp("driver")), {}
    state, aside = driver.root / "state", driver.root / "aside"
    for event, records in events:
        if event == "batch":
            assert records is not None
            driver.run(records)
            model = applied(model, records)
        elif event == "failed attempt":
            assert records is not None
            driver.run(records, commits=False)
        elif event == "compaction":
            driver.compact()
        elif event == "local state lost":
            shutil.rmtree(state, ignore_errors=True)
        elif event == "local state set aside" and state.exists():
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(state, aside)
        elif event == "brought back" and aside.exists():
            shutil.rmtree(state, ignore_errors=True)
            shutil.copytree(aside, state)
    assert driver.state() == model


@pytest.fixture
def driver(tmp_path: Path) -> MiniDriver:
    return MiniDriver(tmp_path)


def set_aside(driver: MiniDriver) -> None:
    shutil.copytree(driver.root / "state", driver.root / "aside")


def bring_back(driver: MiniDriver) -> None:
    shutil.rmtree(driver.root / "state")
    (driver.root / "aside").rename(driver.root / "state")


def test_the_state_of_the_previous_batch_continues_without_reading_the_log(driver: MiniDriver) -> None:
    driver.run([(1, True)])
    recovered = driver.run([(1, True)])
    assert (recovered.plan.method, recovered.rows) == (RecoveryMethod.GO_ON, 0)


def test_an_older_state_is_caught_up_with_only_the_rows_of_later_commits(driver: MiniDriver) -> None:
    driver.run([(key, True) for key in range(8)])
    set_aside(driver)
    driver.run([(1, False), (2, True)])
    driver.run([(2, True)])
    bring_back(driver)
    recovered = driver.run([(3, True)])
    assert (recovered.plan.method, recovered.rows) == (RecoveryMethod.CATCH_UP, 2)
    assert driver.state() == {0: 1, 2: 3, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1}


def test_after_a_failed_attempt_the_state_is_undone_without_the_log(driver: MiniDriver) -> None:
    driver.run([(1, True), (2, True), (3, True)])
    for _ in range(3):
        recovered = driver.run([(1, True), (2, False), (9, True), (40, True)], commits=False)
    assert (recovered.plan.method, recovered.rows) == (RecoveryMethod.UNDO, 4)
    assert driver.state() == {1: 1, 2: 1, 3: 1}
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.GO_ON


def test_a_state_that_was_undone_is_caught_up_with_what_others_committed_meanwhile(driver: MiniDriver) -> None:
    driver.run([(1, True), (2, True)])
    driver.run([(1, True), (5, True)], commits=False)
    set_aside(driver)
    driver.run([(1, False), (6, True)])
    bring_back(driver)
    recovered = driver.run([(3, True)])
    assert (recovered.plan.method, recovered.rows) == (RecoveryMethod.UNDO, 2 + 2)
    assert driver.state() == {2: 1, 3: 1, 6: 1}


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: os.truncate(path, 300)])
def test_an_attempt_whose_undo_rows_are_damaged_is_rebuilt(driver: MiniDriver, harm: Callable[[Path], None]) -> None:
    driver.run([(1, True)])
    driver.run([(1, True), (2, True)], commits=False)
    harm(next((driver.root / "state").glob("*/*/0/generation-*/undo")))
    assert driver.run([(1, True)]).plan.reason == "the rows that would undo a failed attempt are damaged"
    assert driver.state() == {1: 2}


def test_a_state_that_was_not_changed_by_a_batch_has_no_undo_rows(driver: MiniDriver) -> None:
    driver.run([(1, True)])
    driver.run([(1, True)], commits=False)
    driver.state()
    with driver.lock() as local:  # type: ignore[attr-defined]
        assert local.header is not None and local.header.before is None


def test_a_failing_lake_never_damages_a_local_state(driver: MiniDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.run([(1, True)])
    set_aside(driver)
    driver.run([(2, True)])
    bring_back(driver)
    with monkeypatch.context() as patch, driver.lock() as local, pytest.raises(Unavailable):  # type: ignore[attr-defined]
        before = local.header
        patch.setattr(recovery, "LogVersion", SimpleNamespace(at=away))
        driver.recover(local)
    with driver.lock() as local:  # type: ignore[attr-defined]
        assert local.header == before
        assert driver.recover(local).plan.method is RecoveryMethod.CATCH_UP


def away(*_place: object) -> None:
    raise Unavailable("the lake is unavailable")


def test_a_state_older_than_a_compaction_is_rebuilt_so_that_deleted_keys_stay_deleted(driver: MiniDriver) -> None:
    driver.run([(1, True), (2, True)])
    set_aside(driver)
    driver.run([(1, False)])
    driver.compact()
    driver.run([(3, True)])
    bring_back(driver)
    assert driver.run([(4, True)]).plan.method is RecoveryMethod.REBUILD
    assert driver.state() == {2: 1, 3: 1, 4: 1}


def test_a_rebuild_applies_the_rows_of_all_batches(driver: MiniDriver) -> None:
    driver.run([(1, True), (2, True), (3, True)])
    driver.run([(1, False), (2, True)])
    shutil.rmtree(driver.root / "state")
    recovered = driver.run([(4, True)])
    assert (recovered.plan.method, recovered.rows) == (RecoveryMethod.REBUILD, 5)
    assert driver.state() == {2: 2, 3: 1, 4: 1}


def _file(first: int, last: int) -> DataFile:
    return DataFile(path="", parts=(Part("state", 0, 1),), size=1, min_batch=first, max_batch=last, written_ms=0)


def test_files_that_overlap_by_more_than_one_batch_are_read_together() -> None:
    spans = [(1, 4), (4, 4), (4, 9), (5, 6), (9, 9), (-1, 2**63 - 1), (10, 10)]
    files = [_file(*span) for span in spans]
    turns = [[(file.min_batch, file.max_batch) for file in turn] for turn in _turns(files)]
    assert turns == [[(1, 4)], [(4, 4)], [(4, 9), (5, 6)], [(9, 9), (-1, 2**63 - 1), (10, 10)]]


def arrays_of(driver: MiniDriver) -> dict[str, np.ndarray]:
    with driver.lock() as local:  # type: ignore[attr-defined]
        return dict(local.storage(Tally.layout).arrays())


def reboot(driver: MiniDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is started again, after a drain: its local state is durable, and another driver begins with it."""
    with driver.lock() as local:  # type: ignore[attr-defined]
        local.make_durable()
    monkeypatch.setattr(ThisMachine, "boot_id", lambda _machine: "another run")
    driver.epoch += 1


def test_after_a_reboot_a_damaged_state_is_rebuilt(driver: MiniDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.run([(1, True), (2, True)])
    reboot(driver, monkeypatch)
    arrays_of(driver)["counts"][3] = -1
    recovered = driver.run([(1, True)])
    assert recovered.plan == (RecoveryMethod.REBUILD, "the local state is damaged: a count cannot be", -1)
    assert driver.state() == {1: 2, 2: 1}


def test_after_a_reboot_a_state_with_a_different_seed_is_rebuilt(
    driver: MiniDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run([(1, True)])
    reboot(driver, monkeypatch)
    arrays_of(driver)["seed"][0] ^= 1
    assert driver.run([]).plan.reason == "the local state is damaged: its seed is not the log's"


def test_after_a_reboot_a_durable_failed_attempt_is_verified_and_undone(
    driver: MiniDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run([(1, True)])
    driver.run([(1, True), (2, True)], commits=False)
    reboot(driver, monkeypatch)
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.UNDO
    assert driver.state() == {1: 2}


def test_after_a_reboot_a_state_is_verified_once(driver: MiniDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.run([(1, True)])
    reboot(driver, monkeypatch)
    looks: list[Storage] = []
    monkeypatch.setattr(Tally, "damage", lambda _, storage: looks.append(storage))
    for _ in range(3):
        assert driver.state()[1] == 1
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.GO_ON
    assert len(looks) == 1


def test_a_new_driver_does_not_verify_a_state_completed_since_the_boot(
    driver: MiniDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run([(1, True)])
    driver.run([(1, True), (2, True)], commits=False)
    monkeypatch.setattr(Tally, "damage", None)
    driver.epoch += 1
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.UNDO
    driver.epoch += 1
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.GO_ON
    assert driver.state() == {1: 3}


def test_a_state_is_rebuilt_if_a_new_driver_is_killed_while_opening_it(
    driver: MiniDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run([(1, True)])
    driver.epoch += 1
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tally, "open", killed)
        driver.run([(1, True)])
    assert driver.run([(1, True)]).plan.method is RecoveryMethod.REBUILD
    assert driver.state() == {1: 2}


def killed(*_place: object) -> None:
    raise KeyboardInterrupt


def test_after_a_reboot_a_state_with_a_different_stream_time_is_rebuilt(
    driver: MiniDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run([(1, True)])
    reboot(driver, monkeypatch)
    arrays_of(driver)["time"][0] += 1
    assert driver.run([], commits=False).plan.reason.endswith("its stream time is not the log's")


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: os.truncate(path, 8)])
def test_any_task_rebuilds_a_state_with_a_missing_or_truncated_file(
    driver: MiniDriver, harm: Callable[[Path], None]
) -> None:
    driver.run([(1, True)])
    harm(next((driver.root / "state").glob("*/*/0/generation-*/counts")))
    assert driver.run([(1, True)]).plan.reason == "the local state is damaged: a file is missing or cut short"
    assert driver.state() == {1: 2}


def test_a_partition_without_a_commit_starts_with_an_empty_state(driver: MiniDriver) -> None:
    driver.run([(1, True)], commits=False)
    assert driver.run([(1, True)], commits=False).plan.method is RecoveryMethod.UNDO
    assert driver.state() == {}
    assert driver.run([(1, True)], commits=False).plan.method is RecoveryMethod.GO_ON


def test_restoring_from_the_log_gives_equal_tables_before_and_after_a_compaction(driver: MiniDriver) -> None:
    for batch in range(5):
        driver.run([(key, (key + batch) % 3 > 0) for key in range(10)])

    def restored() -> list[dict[str, object]]:
        shutil.rmtree(driver.root / "state")
        with driver.lock() as local:
            return driver.recover(local).state.snapshot().to_pylist()

    before = restored()
    driver.compact()
    assert restored() == before != []


def test_the_test_operator_agrees_with_its_oracle() -> None:
    state = Tally().open(MemoryStorage(Tally.layout))
    records = [(1, True), (9, True), (1, True), (9, False)]
    state.step(Records.from_rows([Row(b"%d" % k, b"x" if kept else None, 0, 0) for k, kept in records]), 0)
    assert state.held() == applied({}, records) == {1: 2}
