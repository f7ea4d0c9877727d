"""The lateness of late records, for every operator."""

from __future__ import annotations

import pytest

from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.testing.driver import Driver
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig

pytestmark = pytest.mark.fast

EPOCH = 1_700_000_000_000
MINUTE, DAY = 60_000, 86_400_000


def windows(aggregate: dict[str, bool]) -> Driver:
    raw = {"input": "in", "window": {"tumbling": "1d", "grace": "1h"}, "aggregate": aggregate, "emit": "final"}
    return Driver(WindowedAggregation(WindowedAggregationConfig.model_validate(raw)))


def window(start: int, end: int) -> bytes:
    return encode_headers([(HEADER_WINDOW_START.encode(), b"%d" % start), (HEADER_WINDOW_END.encode(), b"%d" % end)])


@pytest.mark.parametrize("aggregate", [{"count": True}, {"collect": True}], ids=["aggregates", "elements"])
def test_a_record_of_a_flushed_window_that_is_ahead_of_stream_time_has_lateness_0_and_its_cause_says_so(
    aggregate: dict[str, bool],
) -> None:
    """one day: T, flush, then a record an hour later"""
    tested = windows(aggregate)
    midnight = EPOCH // DAY * DAY
    tested.pipe("k", b"1", midnight)
    tested.flush()
    for minutes in (5, 60, 600):
        tested.pipe("k", b"1", midnight + minutes * MINUTE)
    assert [(row["lateness"], row["cause"]) for row in tested.late] == 3 * [
        (0, "its windows are closed, though it is ahead of stream time")
    ]


def test_an_update_of_a_closed_window_stamped_with_the_wall_clock_has_lateness_0_and_its_cause_says_so() -> None:
    """LogAppendTime: T is when the newest record was appended; the window closed an hour before that"""
    raw = {"input": "in", "until": "window_close", "grace": "1m"}
    tested = Driver(Suppression(SuppressionConfig.model_validate(raw)))
    tested.pipe("k", b"1", EPOCH, window(EPOCH - MINUTE, EPOCH + MINUTE))
    for ahead in (0, 5, DAY):
        tested.pipe("k", b"1", EPOCH + ahead, window(EPOCH - 61 * MINUTE, EPOCH - 60 * MINUTE))
    assert [(row["lateness"], row["cause"]) for row in tested.late] == [
        (0, "its window is closed"),
        *2 * [(0, "its window is closed, though it is ahead of stream time")],
    ]
