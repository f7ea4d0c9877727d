"""The rules of the operator's README, each by an example."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_stream_join import StreamStreamJoin, StreamStreamJoinConfig, StreamStreamJoinRules
from tidegate.operators.stream_stream_join.state import LAYOUT
from tidegate.operators.testing.driver import Driver, Emission

pytestmark = pytest.mark.fast

LEFT, RIGHT = 0, 1


def driver(join: str = "outer", before: int = 5, after: int = 5, grace: int = 2) -> Driver:
    """A driver of a join; times in ms."""
    times = {"before": f"{before}ms", "after": f"{after}ms", "grace": f"{grace}ms"}
    return Driver(StreamStreamJoin(StreamStreamJoinRules.model_validate({"join": join, **times})))


def pipe(tested: Driver, side: int, timestamp: int, key: str | None = "A", value: str | None = None) -> list[Any]:
    """Pipe a record whose value is its timestamp, and return the pairs of timestamps that leave."""
    return pairs(tested.pipe(key, str(timestamp) if value is None else value, timestamp, port=side))


def pairs(emissions: list[Emission]) -> list[Any]:
    """The values of the results, left and right."""
    return [tuple(json.loads(emission.value or b"").values()) for emission in emissions]


def test_records_of_both_streams_are_joined_within_before_and_after() -> None:
    # time   0   4   5  10  13  14     before 5, after 3
    # left              10
    # right      .   5          13  .
    tested = driver("inner", before=5, after=3, grace=20)
    assert [pipe(tested, RIGHT, time) for time in (4, 5, 13, 14)] == [[], [], [], []]
    assert pipe(tested, LEFT, 10) == [(10, 5), (10, 13)]


def test_a_record_is_joined_with_its_partners_in_order_of_time_whatever_their_order_of_arrival() -> None:
    tested = driver("inner", grace=20)
    for time in (12, 8, 10):
        pipe(tested, RIGHT, time)
    assert pipe(tested, LEFT, 10) == [(10, 8), (10, 10), (10, 12)]


def test_records_of_other_keys_and_of_the_same_stream_are_no_partners() -> None:
    tested = driver("inner")
    assert [pipe(tested, LEFT, 10), pipe(tested, LEFT, 10), pipe(tested, RIGHT, 10, "B")] == [[], [], []]


def test_a_result_has_the_later_time_and_the_key_headers_and_offset_of_the_left_record() -> None:
    tested = driver("inner")
    tested.pipe("A", "1", 10, headers=b"\x02\x02h\x02l")
    [result] = tested.pipe("A", "2", 12, headers=b"\x02\x02h\x02r", port=RIGHT)
    assert (result.key, result.timestamp, result.headers) == (b"A", 12, b"\x02\x02h\x02l")


def test_a_record_without_a_partner_leaves_alone_once_time_has_passed_its_window_and_the_grace() -> None:
    # time   0         5    7  8     the window of 0 ends at 5, its grace at 7
    # left   0
    # right                 .  *
    tested = driver("left")
    pipe(tested, LEFT, 0)
    assert pipe(tested, RIGHT, 7, "B") == []
    assert pipe(tested, RIGHT, 8, "B") == [(0, None)]


@pytest.mark.parametrize(("join", "alone"), [("inner", []), ("left", [(0, None)]), ("outer", [(0, None), (None, 0)])])
def test_the_type_of_the_join_says_which_records_leave_alone(join: str, alone: list[Any]) -> None:
    tested = driver(join)
    pipe(tested, LEFT, 0, "A")
    pipe(tested, RIGHT, 0, "B")
    assert pairs(tested.advance(100)) == alone


def test_a_record_that_found_a_partner_does_not_leave_alone() -> None:
    tested = driver()
    assert [pipe(tested, LEFT, 0), pipe(tested, RIGHT, 0)] == [[], [(0, 0)]]
    assert pairs(tested.advance(100)) == []


def test_a_record_that_left_alone_is_not_joined_any_more() -> None:
    # time   0  5   13    the window of the left 0 is closed at 13, that of the right 5 is open until 17
    tested = driver("left", before=10, after=5)
    pipe(tested, LEFT, 0)
    assert pipe(tested, LEFT, 13, "B") == [(0, None)]
    assert pipe(tested, RIGHT, 5) == []


def test_records_without_partners_leave_in_the_order_in_which_their_windows_close_and_left_ones_first() -> None:
    # the window of the left 0 closes at 0 + 9 + 2, that of the right 3 at 3 + 5 + 2, that of the right 4 at 11
    tested = driver("outer", before=5, after=9)
    pipe(tested, RIGHT, 4, "C")
    pipe(tested, RIGHT, 3, "B")
    pipe(tested, LEFT, 0, "A")
    assert pairs(tested.advance(100)) == [(None, 3), (0, None), (None, 4)]


def test_a_record_is_late_once_its_own_window_is_closed() -> None:
    # time  0      12 13  20      T = 20, after 5, grace 2: a left record of 13 is accepted
    tested = driver()
    pipe(tested, RIGHT, 20, "B")
    assert [pipe(tested, LEFT, 13), pipe(tested, LEFT, 12)] == [[], []]
    assert [(row["offset"], row["lateness"], row["bound"], row["side"]) for row in tested.late] == [(2, 8, 13, "left")]


def test_stream_time_is_that_of_both_streams() -> None:
    tested = driver()
    pipe(tested, LEFT, 3)
    pipe(tested, RIGHT, 9)
    assert tested.stream_time == 9


def test_a_record_is_held_as_long_as_one_that_is_not_late_can_find_it() -> None:
    # before 5 + after 5 + grace 2: the left 0 meets a right 5, which is not late until T has passed 12
    tested = driver("inner")
    pipe(tested, LEFT, 0)
    pipe(tested, LEFT, 12, "B")
    assert pipe(tested, RIGHT, 5) == [(0, 5)]
    pipe(tested, LEFT, 13, "B")
    assert [row["timestamp"] for row in tested.held() if row["key"] == b"A"] == [5]


def test_a_record_without_a_key_leaves_alone_at_once_where_the_join_emits_such_and_else_is_rejected() -> None:
    tested = driver("left")
    assert pipe(tested, LEFT, 3, None) == [(3, None)]
    assert pipe(tested, RIGHT, 3, None) == []
    assert [(row["cause"], row["side"]) for row in tested.rejected] == [("null key", "right")]
    assert tested.stream_time == -1


def test_a_record_without_a_value_is_rejected_and_moves_no_time() -> None:
    tested = driver()
    tested.pipe("A", None, 50)
    assert ([row["cause"] for row in tested.rejected], tested.stream_time) == (["null value"], -1)


def test_a_flush_emits_what_waits_and_holds_nothing() -> None:
    tested = driver()
    pipe(tested, LEFT, 0)
    pipe(tested, RIGHT, 0)
    pipe(tested, RIGHT, 1, "B")
    assert (pairs(tested.flush()), tested.held()) == ([(None, 1)], [])


def test_values_that_are_not_json_are_base64() -> None:
    tested = driver("inner")
    tested.pipe("A", b"\xff", 0)
    [result] = tested.pipe("A", "2", 0, port=RIGHT)
    assert result.value == b'{"left_bytes":"/w==","right":2}'


def test_offsets_of_one_stream_may_be_those_of_the_other() -> None:
    tested = driver("outer")
    tested.pipe("A", "1", 5)
    tested._offset = 0
    assert pairs(tested.pipe("A", "2", 5, port=RIGHT)) == [(1, 2)]
    assert [(row["side"], row["offset"]) for row in tested.held()] == [("left", 0), ("right", 0)]
    assert tested.restarted().held() == tested.held()


def test_results_are_counted_with_and_without_partners() -> None:
    state = StreamStreamJoin(driver().operator.config).open(MemoryStorage(LAYOUT))  # type: ignore[attr-defined]
    rows = [Row(b"A", b"1", 0, 0), Row(b"A", b"2", 0, 1, port=RIGHT), Row(b"B", b"3", 0, 2), Row(b"C", b"4", 50, 3)]
    measures = state.step(Records.from_rows(rows), 0).measures
    assert json.loads(json.dumps(measures)) == measures  # as the metadata of a commit have them
    assert (measures["emitted_matched"], measures["emitted_unmatched"], measures["buffer_records_max"]) == (1, 1, 3)


def test_a_window_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="before and after are too long together"):
        StreamStreamJoinRules(join="inner", before=f"{MAX_TIME}ms", after="1ms", grace=0)


def test_there_is_no_default_for_window_and_grace() -> None:
    with pytest.raises(ConfigurationError) as refused:
        StreamStreamJoinRules(join="inner")  # type: ignore[call-arg]
    assert all(option in str(refused.value) for option in ("before", "after", "grace"))


@pytest.mark.parametrize("right", ["in", "out", "dead"])
def test_the_right_stream_has_a_topic_of_its_own(right: str) -> None:
    times = {"before": "1s", "after": "1s", "grace": "1s"}
    raw = {"input": "in", "output": "out", "dead_letters": "dead", "right": right, "join": "inner"}
    with pytest.raises(ConfigurationError, match="name another topic"):
        read(StreamStreamJoinConfig, raw | times)
