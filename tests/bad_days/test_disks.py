"""The lake or the disk of the local state fails: the service waits, logs that, and continues."""

from __future__ import annotations

import pytest

from tests.bad_days.conftest import fill, numbered, produce, published, small_disk, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.folder_lake]

AT_ONCE = {"buffer": {"max_keys": 0, "when_full": "emit"}}


def test_the_service_waits_for_a_missing_lake_and_writes_nothing_in_its_place(world, broker, running):
    here = world(**AT_ONCE)
    lake, elsewhere = here.log.parent, here.log.parent.with_name("elsewhere")
    driver = running(here)
    driver.wait("running")
    lake.rename(elsewhere)
    driver.wait("waiting", "the lake is unavailable")
    produce(broker.bootstrap, here.source, *numbered(1, 2, 3))
    assert not (lake / here.name / "_delta_log").exists()
    elsewhere.rename(lake)
    wait_for(lambda: published(broker.bootstrap, here.output) == [1, 2, 3], "it goes on")
    assert driver.end() is None


def test_a_service_that_waits_for_its_lake_ends_on_request(world, running):
    here = world(**AT_ONCE)
    driver = running(here)
    driver.wait("running")
    here.log.parent.rename(here.log.parent.with_name("elsewhere"))
    driver.wait("waiting", "the lake is unavailable")
    assert driver.end() is None
    driver.wait("drained")


def test_the_service_waits_while_the_lake_s_disk_is_full(world, broker, running, tmp_path):
    here = world(**AT_ONCE)
    with small_disk(tmp_path / "lake", "4m"):
        driver = running(here)
        driver.wait("running")
        produce(broker.bootstrap, here.source, *numbered(1, 2))
        wait_for(lambda: published(broker.bootstrap, here.output) == [1, 2], "it runs")
        filler = fill(tmp_path / "lake")
        produce(broker.bootstrap, here.source, *numbered(3, 4))
        driver.wait("waiting", "disk full")
        filler.unlink()
        wait_for(lambda: published(broker.bootstrap, here.output) == [1, 2, 3, 4], "it goes on")
        assert driver.end() is None


def test_the_service_waits_while_the_local_state_s_disk_is_full_without_a_bus_error(world, broker, running, tmp_path):
    """20,000 keys do not fit into the arrays of a new state: they have to grow, on a disk that is full"""
    here = world(until={"time_limit": "1h"})
    with small_disk(tmp_path / "state", "64m"):
        produce(broker.bootstrap, here.source, *numbered(1, 2, 3, 4))
        driver = running(here)
        driver.wait("running")
        wait_for(lambda: _held(driver) == 4, "it runs")
        filler = fill(tmp_path / "state")
        produce(broker.bootstrap, here.source, *numbered(*range(5, 20_001)))
        driver.wait("waiting", "disk full")
        filler.unlink()
        wait_for(lambda: _held(driver) == 20_000, "it goes on")
        assert driver.end() is None


def _held(driver):
    return sum(known.totals.held for known in driver.driver.claim.operator.newest.partitions.values())
