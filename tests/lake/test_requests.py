"""How many requests a batch and an idle operator cost: counted by a proxy in front of a real S3 server."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.lake.fault_proxy import FaultProxy
from tests.lakes import named
from tests.patience import PATIENCE_S, wait_for
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.batch_loop.driver import OperatorDriver, Owned, Wiring
from tidegate.runtime.configuration.application import Application, configured
from tidegate.state.request_budget import DAY_S, GET_USD, PUT_USD

pytestmark = [pytest.mark.broker, pytest.mark.spark]

NAME, BATCHES, IDLE_S = "updates", 12, 30.0
NUMBERS = itertools.count()


class Service:
    """A suppression over so many partitions, whose driver runs in a thread until the block ends."""

    def __init__(self, spark: Any, broker: Any, source: str, proxy: FaultProxy, folder: Path) -> None:
        self.proxy, self.kafka, self.source = proxy, {"bootstrap.servers": broker.bootstrap}, source
        raw = {
            "application": "counted",
            **named(proxy.server.place(f"requests-{next(NUMBERS)}")),
            "state": str(folder / "state"),
            "keep_output": "forever",
            "control": None,
            "kafka": self.kafka,
            "trigger": "0",
            "operators": {NAME: {"kind": "suppression", "input": source, "until": {"time_limit": "5s"}}},
        }
        application: Application = configured(raw, folder)
        self.driver = OperatorDriver(Wiring(spark=spark, application=application, name=NAME))
        self._stop = Event()
        self._thread = Thread(target=self.driver.run, args=(self._stop,))

    def __enter__(self) -> Service:
        self._thread.start()
        wait_for(lambda: isinstance(self.driver.claim, Owned))
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def batch(self, number: int, partitions: int) -> None:
        """A batch with a record and an emission in every partition is committed."""
        made = [(p, b"k%d" % p, b"v%d" % number, 60_000 * number) for p in range(partitions)]
        before = self.done()
        assert write_all(self.kafka, self.source, made) == partitions
        wait_for(lambda: self.done() == before + partitions)

    def done(self) -> int:
        claim = self.driver.claim
        known = claim.operator.newest.partitions.values() if isinstance(claim, Owned) else ()
        return sum(each.totals.records_in for each in known)

    def number(self) -> int:
        claim = self.driver.claim
        return claim.operator.newest.batch if isinstance(claim, Owned) else -1

    def counted(self, work: Callable[[], object]) -> tuple[Counter[str], list[str]]:
        """The requests during the work, by kind, and the keys of puts."""
        first = len(self.proxy.seen)
        work()
        seen = self.proxy.seen[first:]
        return Counter(request.kind for request in seen), [r.key for r in seen if r.method == "PUT"]


def usd(requests: Counter[str]) -> float:
    return (requests["PUT"] + requests["LIST"]) * PUT_USD + (requests["GET"] + requests["HEAD"]) * GET_USD


@pytest.mark.parametrize("partitions", [4, 16])
def test_a_batch_costs_as_many_puts_at_any_number_of_partitions(
    spark: Any, broker: Any, topic: Any, proxy: FaultProxy, tmp_path: Path, partitions: int
) -> None:
    with Service(spark, broker, topic(partitions=partitions), proxy, tmp_path) as service:
        service.batch(1, partitions)
        began, first = time.monotonic(), service.number()
        found, put = service.counted(lambda: [service.batch(n, partitions) for n in range(2, 2 + BATCHES)])
        lasted, batches = time.monotonic() - began, service.number() - first
        print(f"{partitions} partitions, {batches} batches in {lasted:.0f} s:", dict(found))
        leases = sum("/_tidegate/lease/" in f"/{key}" for key in put)
        assert batches >= BATCHES
        assert (found["PUT"] - leases) / batches <= 3.1
        assert found["LIST"] <= 1 + lasted / 60, "only the look for replaced entries, once a minute"
        assert (found["GET"] + found["HEAD"]) / batches <= 3 + lasted / batches, (
            "a look at the own entry, and at requests"
        )


def test_an_idle_operator_costs_less_than_ten_cents_a_day(
    spark: Any, broker: Any, topic: Any, proxy: FaultProxy, tmp_path: Path
) -> None:
    with Service(spark, broker, topic(partitions=4), proxy, tmp_path) as service:
        service.batch(1, 4)
        time.sleep(2)
        found, _ = service.counted(lambda: time.sleep(IDLE_S))
        a_day = usd(found) * DAY_S / IDLE_S
        print(f"idle for {IDLE_S:.0f} s:", dict(found), f"{a_day:.3f} USD a day")
        assert found["LIST"] <= 1
        found["LIST"] = 0  # one after the batch, and none later
        assert usd(found) * DAY_S / IDLE_S <= 0.10
