"""A service without Spark and broker: drivers that stand still, and batches by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata import small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.runtime.configuration.application import Application, application_of
from tidegate.runtime.telemetry.driver_status import DriverStatus
from tidegate.runtime.telemetry.observation import Observation

CANARY = "s3cr3t-canary"
RAW: dict[str, Any] = {
    "application": "shop",
    "lake": "lake",
    "keep_output": "forever",
    "control": f"postgresql+psycopg://tidegate:{CANARY}-control@127.0.0.1:1/control",
    "kafka": {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{CANARY}-login";',
        "ssl.key.password": f"{CANARY}-key",
    },
    "operators": {"updates": {"kind": "suppression", "input": "in", "until": {"time_limit": "1h"}}},
}


def application(**more: Any) -> Application:
    """A file's application, with passwords in all places that take one."""
    return application_of(RAW | more)


def meta(batch: int = 1, **more: Any) -> BatchMeta:
    """The metadata of a batch of `updates`."""
    said: dict[str, Any] = {"operator": "updates", "epoch": 3, "batch": batch, "clock": 1_000 * batch, "input": "in"}
    return small_meta(**said | more)


COUNTS = Counts(records_in=10, applied=5, superseded=2, late=2, rejected=1, emitted=4, held=3, held_bytes=30)
MEASURES = {
    "lateness_sum": 5_000,
    "lateness_count": 9,
    "lateness_max": 4_000,
    "lateness_upto_4": 9,
    "emitted_time": 1,
    "emitted_keys": 2,
    "emitted_bytes": 1,
    "suppressed": 2,
    "filtered": 1,
    "expired_lookups": 1,
    "waiting_records_now": 2,
    "given_up": 3,
    "overtime_sum": 700,
    "overtime_count": 2,
    "overtime_min": 300,
    "memory_records_now": 2,
    "memory_bytes_now": 20,
    "memory_records_max": 5,
    "memory_bytes_max": 50,
    "disk_records_now": 1,
    "disk_bytes_now": 10,
    "disk_records_max": 1,
    "disk_bytes_max": 10,
}
SECONDS = {"job": 0.3, "recover": 0.02, "commit": 0.04, "publish": 0.2}


def busy(batch: int = 1, **more: Any) -> BatchMeta:
    """The metadata of a batch in which everything that is measured has happened, in partition 7."""
    said: dict[str, Any] = {
        "counts": {7: COUNTS},
        "totals": {7: COUNTS},
        "measures": {7: MEASURES},
        "next_offset": {7: 100},
        "stream_time": {7: 60_000},
        "last": {7: (batch, "a")},
        "opened": {7: True},
        "recovered": {7: "rebuild: no header"},
    }
    return meta(batch, **said | more)


class StillDriver:
    """A driver that is seen as it is said to be."""

    def __init__(self, **said: Any) -> None:
        self.said: dict[str, Any] = {"operator": "updates", "input": "in"} | said

    def observe(self) -> Observation:
        """As it was said."""
        return Observation(**self.said)


def driver_status(state: Any, why: str = "", unclear: tuple[int, ...] = ()) -> DriverStatus:
    """A driver's condition."""
    return DriverStatus(state=state, since=1, why=why, unclear=unclear)


@pytest.fixture
def driver() -> StillDriver:
    """One that has done everything that is measured."""
    return StillDriver(
        status=driver_status("running", unclear=(7,)),
        loop_age_s=0.5,
        newest=busy(),
        ends={"in": {7: 142}},
        files=11,
        state_rows=22,
        compactions=2,
        compaction_s=1.5,
    )
