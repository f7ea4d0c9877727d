"""Operators whose lake is in a real S3 server: results, readers, and faults of the store."""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import tidegate as tg
from tests.bad_days.conftest import Running
from tests.end_to_end.readers.by_duckdb import duck
from tests.lake.fault_proxy import Fate, FaultProxy, Request
from tests.lake.s3_server import LOGIN, S3Server
from tests.lakes import delta_table, named
from tests.patience import wait_for
from tidegate.contracts.errors import StateError
from tidegate.devkit.produce_consume import read_all, write_all
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import Application, configured
from tidegate.runtime.spark.s3a import let_read
from tidegate.spark import query, register_format
from tidegate.state.delta_log.log_entries import entry_key
from tidegate.state.lake.place import Place

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 4
NAME = "updates"
NUMBERS = itertools.count()
SUPPRESSION = {"until": {"time_limit": "5s"}, "buffer": {"max_keys": 100, "when_full": "emit"}}


class Shop:
    """An application with one suppression operator, whose log is in the bucket; its driver runs in the test."""

    def __init__(self, spark: Any, broker: Any, topic: Any, lake: Place, folder: Path) -> None:
        self.spark, self.lake, self.folder, self.name = spark, lake, folder, NAME
        self.kafka = {"bootstrap.servers": broker.bootstrap}
        self.source, self.output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)

    @property
    def application(self) -> Application:
        raw = {
            "application": "shop",
            **named(self.lake),
            "state": str(self.folder / "state"),
            "keep_output": "forever",
            "kafka": self.kafka,
            "trigger": "0",
            "operators": {NAME: {"kind": "suppression", "input": self.source, "output": self.output, **SUPPRESSION}},
        }
        return configured(raw, self.folder)

    def feed(self, start: int, count: int) -> None:
        """Records of twenty keys, of which a partition has five, are in the input, one a second of event time."""
        made = [(n % PARTITIONS, b"k%d" % (n % 20), b"v%d" % n, 1_000 * n) for n in range(start, start + count)]
        assert write_all(self.kafka, self.source, made) == count

    def run(self) -> None:
        """A new driver claims the operator and processes all that is in the input."""
        driver = OperatorDriver(Wiring(spark=self.spark, application=self.application, name=NAME))
        driver.start()
        driver.run(Event(), until_caught_up=True)

    def lose_local_state(self) -> None:
        shutil.rmtree(self.folder / "state")

    def published(self) -> list[list[tuple[bytes | None, bytes | None, int]]]:
        return read_all(self.kafka, self.output)


@pytest.fixture
def shop(spark, broker, topic, tmp_path):
    """`shop(server)`: a shop whose lake is in the server's bucket."""

    def make(server: S3Server) -> Shop:
        return Shop(spark, broker, topic, server.place(f"shop-{os.getpid()}-{next(NUMBERS)}"), tmp_path / "here")

    return make


@pytest.fixture
def undisturbed(spark, broker, topic, tmp_path):
    """`undisturbed(records)`: what a shop publishes whose lake is a folder and whom nothing disturbs."""

    def published(records: int) -> list[list[tuple[bytes | None, bytes | None, int]]]:
        other = Shop(spark, broker, topic, Place.of(tmp_path / "lake"), tmp_path / "other")
        other.feed(0, records)
        other.run()
        return other.published()

    return published


def test_an_operator_goes_on_from_its_log_alone_and_spark_duckdb_and_delta_rs_read_it(
    shop, undisturbed, s3: S3Server
) -> None:
    here = shop(s3)
    here.feed(0, 200)
    here.run()
    here.lose_local_state()
    here.feed(200, 200)
    here.run()
    expected = undisturbed(400)
    assert here.published() == expected
    by_spark = (
        query(here.spark, here.application, f"SELECT count(*) AS n FROM {NAME}_emissions").column("n").to_pylist()
    )
    count = [sum(map(len, expected))]
    assert by_spark == by_delta_rs(here) == by_duckdb(here) == by_format(here) == by_read_log(here) == count


def by_format(here: Shop) -> list[int]:
    register_format(here.spark)
    log = here.lake / NAME
    return [here.spark.read.format("tidegate").options(**dict(log.options)).load(str(log)).count()]


def by_read_log(here: Shop) -> list[int]:
    log = here.lake / NAME
    return [tg.read_log(str(log), lake_options=dict(log.options)).read_all().num_rows]


def by_delta_rs(here: Shop) -> list[int]:
    return [delta_table(here.lake / NAME).to_pyarrow_table(filters=[("kind", "=", "emission")]).num_rows]


def by_duckdb(here: Shop) -> list[int]:
    with duck(here.lake / NAME) as connection:
        rows = connection.execute("SELECT count(*) FROM log WHERE kind = 'emission'").fetchall()
    return [count for (count,) in rows]


def test_lost_late_doubled_and_refused_answers_change_no_result(shop, undisturbed, proxy: FaultProxy) -> None:
    here = shop(proxy.server)
    for start, fate in zip(
        range(0, 280, 40), ("lost", "late", "doubled", "conflict", "failed", "busy", "reset"), strict=True
    ):
        here.feed(start, 40)
        for kind in ("PUT", "GET", "HEAD"):
            if kind == "PUT" or fate not in ("late", "conflict"):
                proxy.next(fate, kind=kind)
        proxy.next(fate, containing=".json")
        here.run()
    assert here.published() == undisturbed(280)


@pytest.mark.parametrize(
    ("fate", "why"), [("expired", "credentials of the lake have expired"), ("reset", "not answer")]
)
def test_the_service_waits_for_credentials_and_for_a_store_that_is_away(
    shop, undisturbed, proxy: FaultProxy, fate: Fate, why: str
) -> None:
    here = shop(proxy.server)
    driver = Running(here)
    try:
        driver.wait("running")
        proxy.always(fate)
        here.feed(0, 100)
        driver.wait("waiting", why)
        here.feed(100, 100)
        proxy.heal()
        expected = undisturbed(200)
        wait_for(lambda: here.published() == expected, "it goes on")
    finally:
        proxy.heal()
        assert driver.end() is None


def test_an_entry_that_spark_overwrites_stops_the_driver(shop, s3: S3Server, proxy: FaultProxy) -> None:
    """Spark sees that there is no entry N --- the driver commits N --- Spark puts its own N, without a condition"""
    here = shop(s3)
    for start in (0, 100):
        here.feed(start, 100)
        here.run()
    claimed = OperatorDriver(Wiring(spark=here.spark, application=here.application, name=NAME)).start()
    log, foreign = here.lake / NAME, here.spark.newSession()
    let_read(foreign, log)
    foreign.conf.set("fs.s3a.bucket.lake.endpoint", proxy.server.endpoint)
    foreign.conf.set("fs.s3a.impl.disable.cache", "true")
    proxy.next("held", containing="_delta_log/0")
    with ThreadPoolExecutor(1) as beside:
        optimized = beside.submit(foreign.sql, f"OPTIMIZE delta.`{log.for_spark}`")
        wait_for(lambda: entries_put(proxy), "Spark puts its entry")
        [put] = entries_put(proxy)
        assert not put.is_conditional
        here.feed(200, 40)
        wait_for(claimed.round, "a batch")
        assert put.key.endswith(f"/{entry_key(claimed.log.version)}")
        proxy.release()
        optimized.result()
    with pytest.raises(StateError, match="replaced an entry") as told:
        claimed.round()
    assert str(told.value.value).endswith(entry_key(claimed.log.version))


def entries_put(proxy: FaultProxy) -> list[Request]:
    return [request for request in list(proxy.seen) if request.kind == "PUT" and "_delta_log/0" in request.path]


def test_no_setting_of_spark_or_file_of_the_state_has_a_secret(shop, s3: S3Server) -> None:
    here = shop(s3)
    here.feed(0, 40)
    here.run()
    secret = LOGIN["AWS_SECRET_ACCESS_KEY"]
    assert secret not in str(here.spark.sparkContext.getConf().getAll())
    assert not [file for file in here.folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
