"""A driver and its control database: batches never wait for it, and it finally agrees with the log."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pydantic import SecretStr

from tests.control.contents import batches, batches_of_log, from_the_logs, rows
from tests.control.server import PASSWORD, Server
from tests.patience import PATIENCE_S, wait_for
from tests.runtime.miniature import NAME, Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.cli.driver_client import ask_driver
from tidegate.contracts.errors import BufferFull, EngineError, Fenced, StateError, TidegateError
from tidegate.control import revisions
from tidegate.control.address import Address
from tidegate.control.database import LONGEST_WAIT_S, Database
from tidegate.runtime.batch_loop.driver import Owned
from tidegate.runtime.control_sync import backfill, recording
from tidegate.runtime.control_sync.recording import Recorder
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state.lake.place import Place


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    """A broker with one record in each partition."""
    broker = ScriptedKafka()
    broker.stable, broker.ends = {0: 1, 1: 1}, {0: 1, 1: 1}
    use_broker(monkeypatch, broker)
    return broker


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing database is tried again soon."""
    monkeypatch.setattr(recording, "RETRY_S", 0.05)
    monkeypatch.setattr(recording, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(recording, "HEARTBEAT_S", 0.2)


class Service:
    """A driver that runs in a thread, on a log in the folder."""

    def __init__(self, kafka: ScriptedKafka, address: Address, folder: Path) -> None:
        self.kafka, self.jobs, self.log = kafka, Jobs(), folder / "lake" / NAME
        self.application = application(folder).model_copy(update={"control": SecretStr(address.url), "trigger": 10})
        self.database = Database(address)
        self.error: Exception | None = None

    def __enter__(self) -> Service:
        self.driver = driver_of(self.application, self.jobs)
        self._stop, self._thread = Event(), Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.driver.run(self._stop)
        except TidegateError as error:
            self.error = error

    def ended(self) -> Exception | None:
        """The driver's error, once it has ended by itself."""
        self._thread.join(PATIENCE_S)
        return self.error

    def batch(self) -> float:
        """One more batch is committed; gives the seconds that it took."""
        started, offset = time.monotonic(), self.kafka.stable[0] + 1
        self.kafka.stable = self.kafka.ends = {0: offset, 1: offset}
        wait_for(lambda: self._reached(offset))
        return time.monotonic() - started

    def _reached(self, offset: int) -> bool:
        claim = self.driver.claim
        return isinstance(claim, Owned) and claim.operator.newest.partitions[0].next_offset == offset

    def written(self) -> bool:
        """True when the database has what the log has."""
        try:
            return batches(self.database, NAME) == batches_of_log(self.log)
        except TidegateError:
            return False


@pytest.fixture
def service(kafka: ScriptedKafka, address: Address, tmp_path: Path) -> Iterator[Service]:
    """A service that runs, with its first batch committed."""
    with Service(kafka, address, tmp_path) as running:
        running.batch()
        yield running


def test_a_service_creates_the_tables_and_writes_every_batch(service: Service) -> None:
    for _ in range(3):
        service.batch()
    wait_for(service.written)
    assert {row["action"] for row in batches(service.database, NAME)} == {"claim", "batch"}
    [operator] = rows(service.database, "operators")
    assert operator == {"application": "app", "operator": NAME, "kind": "suppression"}


def test_an_instance_shows_its_epoch_and_heartbeat(service: Service) -> None:
    def instance() -> dict[str, Any]:
        [found] = rows(service.database, "instances")
        return found

    wait_for(service.written)
    wait_for(lambda: rows(service.database, "instances"))
    wait_for(lambda: (instance()["epoch"], instance()["state"]) == (1, "running"))
    before = instance()["heartbeat_ms"]
    wait_for(lambda: instance()["heartbeat_ms"] > before)


def test_a_driver_that_has_nothing_to_record_keeps_its_heartbeat_beside_one_that_has(
    service: Service, tmp_path: Path
) -> None:
    idle = service.application.model_copy(update={"application": "idle", "lake": Place.of(tmp_path / "empty")})

    def heartbeat() -> int:
        found = [row for row in rows(service.database, "instances") if row["application"] == "idle"]
        return int(found[0]["heartbeat_ms"]) if found else 0

    wait_for(service.written)
    with Recorder(idle, NAME, DriverStatusFile(tmp_path / "idle")).recording_run():
        wait_for(heartbeat)
        before, until = heartbeat(), time.monotonic() + PATIENCE_S
        while heartbeat() == before and time.monotonic() < until:
            service.batch()
        assert heartbeat() > before


def test_a_drained_instance_has_that_state(kafka: ScriptedKafka, address: Address, tmp_path: Path) -> None:
    with Service(kafka, address, tmp_path) as service:
        service.batch()
    [instance] = rows(service.database, "instances")
    assert instance["state"] == "drained"
    assert service.written()
    assert rows(service.database, "incidents") == []


def test_emptied_tables_are_filled_from_the_log(service: Service) -> None:
    wait_for(service.written)
    with service.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM batches")
    service.batch()
    wait_for(service.written)


def test_dropped_tables_are_complete_again_after_an_upgrade(service: Service) -> None:
    wait_for(service.written)
    revisions.downgrade(service.database, "base")
    service.batch()
    revisions.upgrade(service.database)
    service.batch()
    wait_for(service.written)


def test_batches_beyond_the_queue_are_read_from_the_log(
    kafka: ScriptedKafka, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_PENDING", 2)
    monkeypatch.setattr(recording, "WRITE_EVERY_S", 0.3)
    with Service(kafka, address, tmp_path) as service:
        for _ in range(8):
            service.batch()
        wait_for(service.written)


def test_batches_that_the_log_deleted_are_deleted_from_the_database(
    kafka: ScriptedKafka, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(kafka, address, tmp_path)
    service.application = service.application.model_copy(update={"keep_output": 1})
    with service:
        for _ in range(2):  # what the first compaction's metadata does not build upon can go with the second
            for _ in range(3):
                service.batch()
            assert ask_driver("compact", service.application, NAME) is not None
        service.batch()
        wait_for(service.written)
        assert rows(service.database, "batches")[0]["batch"] > 0
        recorded = from_the_logs(service.database)
    backfill.rebuild(service.database, service.application, NAME)
    assert from_the_logs(service.database) == recorded
    assert len(recorded["compactions"]) == 2


def test_a_re_created_log_replaces_the_old_one(kafka: ScriptedKafka, address: Address, tmp_path: Path) -> None:
    with Service(kafka, address, tmp_path) as first:
        for _ in range(3):
            first.batch()
    first.log.rename(tmp_path / "away")
    kafka.marks.clear()
    with Service(kafka, address, tmp_path) as second:
        second.batch()
        wait_for(second.written)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Fenced("taken over"), "fenced"), (StateError("damaged"), "stopped"), (BufferFull("x"), "bound reached")],
)
def test_an_unrequested_end_is_an_incident(
    kafka: ScriptedKafka, address: Address, tmp_path: Path, error: TidegateError, kind: str, monkeypatch: Any
) -> None:
    def fail(_attempt: object) -> None:
        raise error

    monkeypatch.setattr("tidegate.runtime.batch_loop.retries.PAUSES_S", ())
    with Service(kafka, address, tmp_path) as service:
        service.batch()
        service.jobs.before = fail
        kafka.stable = kafka.ends = {0: 9, 1: 9}
        assert service.ended() is error
    [incident] = rows(service.database, "incidents")
    assert (incident["kind"], incident["reason"]) == (kind, error.problem)
    assert rows(service.database, "instances")[0]["state"] == kind


def test_a_driver_that_never_claimed_its_operator_was_refused(
    kafka: ScriptedKafka, address: Address, tmp_path: Path
) -> None:
    kafka.topics["in"] = ("id", 2)
    kafka.topics["out"] = ("id", 1)
    with Service(kafka, address, tmp_path) as service:
        assert "fewer partitions" in str(service.ended())
    assert [row["kind"] for row in rows(service.database, "incidents")] == ["refused"]


@pytest.mark.fast
def test_an_incident_that_could_not_be_written_is_recorded_by_the_next_driver(
    kafka: ScriptedKafka, tmp_path: Path
) -> None:
    kafka.topics["out"] = ("id", 1)
    away = Address(f"sqlite:///{tmp_path}/away/control.db")
    with Service(kafka, away, tmp_path) as service:
        assert service.ended() is not None
    (tmp_path / "away").mkdir()
    kafka.topics.clear()
    for _ in range(2):  # and once only
        with Service(kafka, away, tmp_path) as service:
            service.batch()
        assert [row["kind"] for row in rows(service.database, "incidents")] == ["refused"]


@pytest.mark.fast
class TestSqlite:
    """What can happen to a file."""

    @pytest.fixture
    def address(self, tmp_path: Path) -> Address:
        return Address(f"sqlite:///{tmp_path}/control.db")

    def test_a_database_file_locked_by_another_writer_delays_no_batch(self, service: Service) -> None:
        wait_for(service.written)
        writer = sqlite3.connect(service.database.address.file, isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        assert max(service.batch() for _ in range(3)) < LONGEST_WAIT_S / 2
        writer.execute("ROLLBACK")
        wait_for(service.written)

    def test_a_deleted_database_file_is_created_again_from_the_log(self, service: Service) -> None:
        wait_for(service.written)
        service.database.address.file.unlink()
        service.batch()
        wait_for(service.written)

    def test_each_error_of_a_file_that_is_no_database_is_logged_once_and_a_new_file_ends_them(
        self, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        wait_for(service.written)
        service.database.address.file.write_bytes(b"no database" * 1_000)
        for _ in range(3):
            service.batch()
        time.sleep(4 * recording.RETRY_S)
        logged = [line for line in caplog.messages if "continues without the control database" in line]
        assert logged and len(logged) == len(set(logged))
        service.database.address.file.unlink()
        wait_for(service.written)


@pytest.mark.postgres
class TestPostgresql:
    """What can happen to a server."""

    @pytest.fixture
    def own(self) -> Iterator[Server]:
        """A server that may be stopped."""
        server = Server()
        yield server
        server.remove()

    def test_stopping_and_dropping_the_database_affects_no_batch(
        self, own: Server, kafka: ScriptedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = own.create()
        with Service(kafka, Address(own.url(name)), tmp_path) as service:
            service.batch()
            wait_for(service.written)
            own.stop()
            assert max(service.batch() for _ in range(3)) < LONGEST_WAIT_S / 2
            own.start()
            service.batch()
            wait_for(service.written)
            own.drop(name)
            assert max(service.batch() for _ in range(3)) < LONGEST_WAIT_S / 2
            own.tell(f"CREATE DATABASE {name}")
            service.batch()
            wait_for(service.written)
        assert len(batches(service.database, NAME)) == 1 + 9
        assert PASSWORD not in caplog.text

    def test_an_unresponsive_server_delays_only_the_first_batch_and_briefly_the_end(
        self, kafka: ScriptedKafka, tmp_path: Path
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"postgresql+psycopg://tidegate:{PASSWORD}@127.0.0.1:{silent.getsockname()[1]}/control"
            with Service(kafka, Address(url), tmp_path) as service:
                assert service.batch() < 1.5 * LONGEST_WAIT_S  # it asks once whether there was a log
                assert max(service.batch() for _ in range(3)) < LONGEST_WAIT_S / 2
                ending = time.monotonic()
            assert time.monotonic() - ending < recording.CLOSE_WITHIN_S + 2

    @pytest.mark.parametrize(
        "part",
        [("tidegate:", "tidegate:wrong-"), ("tidegate:", "nobody:"), ("127.0.0.1", "nowhere.invalid"), ("/c", "/x")],
    )
    def test_no_line_about_a_database_s_refusal_contains_the_password(
        self,
        server: Server,
        kafka: ScriptedKafka,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        part: tuple[str, str],
    ) -> None:
        address = Address(server.url(server.create()).replace(*part))
        with Service(kafka, address, tmp_path) as service:
            service.batch()
            wait_for(lambda: "continues without the control database" in caplog.text)
        assert PASSWORD not in caplog.text
        with pytest.raises(EngineError) as raised, service.database.begin():
            pass
        assert PASSWORD not in f"{raised.value} {raised.getrepr(style='long')}"
