"""An operator that has run before never creates a second log by itself, even if its lake is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.runtime.miniature import NAME, application
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import StateError, Unavailable
from tidegate.control import ledger, revisions
from tidegate.control.database import Database
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.batch_loop.claim import Claimant
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import diagnosis
from tidegate.runtime.doctor.diagnosis import diagnose
from tidegate.state.local.local_state import LocalState

pytestmark = pytest.mark.fast


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


@pytest.fixture
def given(tmp_path: Path) -> Application:
    control = SecretStr(f"sqlite:///{tmp_path}/control.db")
    return application(tmp_path).model_copy(update={"control": control})


def claimant(given: Application, kafka: ScriptedKafka) -> Claimant:
    return Claimant(given, NAME, lambda: kafka, deadline_s=5.0)  # type: ignore[arg-type, return-value]


def local_state(given: Application, meta: BatchMeta, kafka: ScriptedKafka) -> str:
    root, token = given.state / given.application, (meta.epoch, meta.batch)
    with LocalState.lock(root, 0, operator=NAME, table_id=meta.table_id, token=token) as local:
        local.begin(*token, "attempt")
    return f"local state of table {meta.table_id}"


def control_database(given: Application, meta: BatchMeta, kafka: ScriptedKafka) -> str:
    assert given.control_database is not None
    database = Database(given.control_database)
    revisions.prepare(database)
    with database.begin() as connection:
        ledger.upsert_operator(connection, key := OperatorKey(given.application, NAME), lake="lake", kind="suppression")
        ledger.record(connection, key, [meta])
    return f"batch {meta.batch} in the control database"


def mark(given: Application, meta: BatchMeta, kafka: ScriptedKafka) -> str:
    kafka.marks[1] = (0, f"tidegate/1 {meta.table_id} {meta.batch}")
    return f"the mark of consumer group app-{NAME}"


TRACES = (local_state, control_database, mark)
Trace = Callable[[Application, BatchMeta, ScriptedKafka], str]


def empty_mount_point(given: Application) -> Path:
    away = given.lake.folder.rename(given.lake.folder.with_name("unmounted"))
    given.lake.folder.mkdir()
    return away


def no_folder(given: Application) -> Path:
    return given.lake.folder.rename(given.lake.folder.with_name("unmounted"))


def stray_files(given: Application) -> Path:
    """What a batch that was under way has left in the mount point."""
    away = empty_mount_point(given)
    (given.lake.folder / NAME / "kind=state" / "partition=0").mkdir(parents=True)
    return away


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("goes", [empty_mount_point, no_folder, stray_files])
def test_an_operator_with_any_trace_waits_for_its_lake_and_then_continues(
    given: Application, kafka: ScriptedKafka, trace: Trace, goes: Callable[[Application], Path]
) -> None:
    first = claimant(given, kafka).claim().meta
    said = trace(given, first, kafka)
    away = goes(given)
    there = sorted(given.lake.folder.rglob("*"))
    with pytest.raises(Unavailable, match=f"{NAME} has run before, but its log is not there") as refused:
        claimant(given, kafka).claim()
    assert said in str(refused.value.value)
    assert str(given.lake.folder / NAME) in str(refused.value.value)
    assert "mount" in refused.value.remedy
    assert "a new name" in refused.value.remedy
    assert sorted(given.lake.folder.rglob("*")) == there, "nothing was made"
    if given.lake.folder.exists():
        given.lake.folder.rename(given.lake.folder.with_name("mount point"))
    away.rename(given.lake.folder)
    again = claimant(given, kafka).claim().meta
    assert (again.table_id, again.epoch) == (first.table_id, first.epoch + 1)


def test_an_operator_without_a_trace_begins(given: Application, kafka: ScriptedKafka) -> None:
    assert claimant(given, kafka).claim().meta.epoch == 1


def test_committed_offsets_without_a_mark_are_not_a_trace(given: Application, kafka: ScriptedKafka) -> None:
    kafka.marks[0] = (5, "")
    with pytest.raises(StateError, match="another form"):
        claimant(given, kafka).claim()


def test_no_service_waits_for_an_unresponsive_control_database(given: Application, kafka: ScriptedKafka) -> None:
    assert given.control_database is not None
    given.control_database.file.write_text("not a database")
    assert claimant(given, kafka).claim().meta.epoch == 1


def test_an_operator_with_a_log_does_not_need_the_control_database(given: Application, kafka: ScriptedKafka) -> None:
    claimant(given, kafka).claim()
    assert given.control_database is not None
    given.control_database.file.write_text("not a database")
    claimant(given, kafka).claim()


@pytest.mark.parametrize("trace", [local_state, control_database])
def test_doctor_names_the_operators_that_have_run_and_have_no_log(
    given: Application, kafka: ScriptedKafka, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_kafka_checks", lambda *_: iter(()))
    said = trace(given, claimant(given, kafka).claim().meta, kafka)
    assert not [found for found in diagnose(given) if "its log is not there" in found.problem]
    empty_mount_point(given)
    [found] = [found for found in diagnose(given) if "its log is not there" in found.problem]
    assert found.about == NAME
    assert said in found.value
    assert "mount" in found.remedy
    assert "a new name" in found.remedy
