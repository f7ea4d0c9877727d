"""The per-record driver."""

from __future__ import annotations

import pytest

from tests.operators.suppression.partitions import config
from tidegate.contracts.errors import BufferFull
from tidegate.operators.suppression import Suppression
from tidegate.operators.testing.driver import Driver, Emission

pytestmark = pytest.mark.fast


def test_piping_a_record_returns_the_emissions_that_it_causes() -> None:
    driver = Driver(Suppression(config(until={"time_limit": "5ms"})))
    assert driver.pipe("A", "1", 0, headers=b"\x02") == []
    assert driver.pipe("B", None, 5) == [Emission(key=b"A", value=b"1", timestamp=0, cause="time", headers=b"\x02")]
    assert [row["key"] for row in driver.held()] == [b"B"]
    assert [emission.cause for emission in driver.advance(10)] == ["idle"]
    assert driver.stream_time == 10


def test_late_and_rejected_records_are_collected() -> None:
    driver = Driver(Suppression(config(max_lateness="1ms")))
    for key, timestamp in (("A", 10), ("A", 1), (None, 20)):
        driver.pipe(key, "1", timestamp)
    assert [row["lateness"] for row in driver.late] == [9]
    assert [row["cause"] for row in driver.rejected] == ["null key"]


def test_a_full_buffer_is_an_error_that_changes_nothing_and_a_larger_limit_continues() -> None:
    tight, wide = (Suppression(config(buffer={"max_keys": keys, "when_full": "shut_down"})) for keys in (1, 2))
    driver = Driver(tight)
    driver.pipe("A", "1", 0)
    with pytest.raises(BufferFull) as stopped:
        driver.pipe("B", "2", 1)
    assert stopped.value.value == "offset 1"
    driver = driver.restarted(wide)
    driver.pipe("B", "2", 1)
    assert [(row["key"], row["offset"]) for row in driver.held()] == [(b"A", 0), (b"B", 1)]
    assert [emission.key for emission in driver.flush()] == [b"A", b"B"]
