"""A service whose control database is stopped and dropped while it runs: nothing is lost in either."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread

import pytest
from pydantic import SecretStr

from tests.control.contents import batches, batches_of_log, from_the_logs, rows
from tests.control.server import PASSWORD, Server
from tests.kill.harness import committed, records, split
from tests.patience import wait_for
from tidegate.cli.driver_client import ask_driver
from tidegate.contracts.errors import EngineError
from tidegate.control import revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.runtime.batch_loop.driver import NotClaimed, OperatorDriver, Wiring
from tidegate.runtime.control_sync import backfill, recording

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres]

COUNT = 24_000
SMALL = {"until": {"time_limit": "5s"}, "buffer": {"max_keys": 100, "when_full": "emit"}}


@pytest.fixture
def server():
    running = Server()
    yield running
    running.remove()


def undisturbed(world, broker):
    """What consumers see of the same records without a control database."""
    here = world(beside="calm", **SMALL)
    here.feed(records(COUNT))
    here.run()
    return committed(broker.bootstrap, here.output)


@contextmanager
def running(driver):
    """The driver runs, and has claimed its operator."""
    stop = Event()
    thread = Thread(target=driver.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: not isinstance(driver.claim, NotClaimed))
        yield
    finally:
        stop.set()
        thread.join()


def processed(driver, world, part):
    """The records are in the input, and the driver has done with them."""
    done = sum(driver.claim.operator.newest.next_offsets.values())
    world.feed(part)
    wait_for(lambda: sum(driver.claim.operator.newest.next_offsets.values()) == done + len(part))


def test_stopping_and_dropping_the_control_database_affects_no_batch(world, broker, server, caplog, monkeypatch):
    monkeypatch.setattr(recording, "RETRY_S", 0.5)
    here, name = world(**SMALL), server.create()
    here.application = here.application.model_copy(update={"control": SecretStr(server.url(name))})
    database = Database(Address(server.url(name)))
    first, second, third, fourth, fifth, sixth = split(records(COUNT), 6)
    driver = OperatorDriver(Wiring(spark=here.spark, application=here.application, name=here.name))

    def written():
        try:
            return batches(database, here.name) == batches_of_log(here.log)
        except EngineError:
            return False

    with running(driver):
        processed(driver, here, first)
        wait_for(written)
        server.stop()
        processed(driver, here, second)
        server.start()
        processed(driver, here, third)
        server.drop(name)
        processed(driver, here, fourth)
        assert ask_driver("compact", here.application, here.name) is not None
        processed(driver, here, fifth)
        server.tell(f"CREATE DATABASE {name}")
        processed(driver, here, sixth)
        wait_for(written)
    assert written()
    assert sum(row["records_in"] for row in batches(database, here.name)) == COUNT
    assert [row["state"] for row in rows(database, "instances")] == ["drained"]
    assert "continues without the control database" in caplog.text
    assert PASSWORD not in caplog.text
    assert committed(broker.bootstrap, here.output) == undisturbed(world, broker)
    recorded = from_the_logs(database)
    server.drop(name)
    server.tell(f"CREATE DATABASE {name}")
    revisions.prepare(database)
    backfill.rebuild(database, here.application, here.name)
    assert from_the_logs(database) == recorded
