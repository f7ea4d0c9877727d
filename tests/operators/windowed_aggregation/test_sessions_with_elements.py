"""Sessions that keep their elements: what a merge makes of the elements, of evictors and of counts since a firing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.operators.windowed_aggregation.test_evictors import AFTER, driver, told
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.testing.driver import Driver, Emission

pytestmark = pytest.mark.fast

HERE = __name__
SESSION = {"session": "5ms", "grace": "10ms"}


def sessions(**changed: Any) -> Driver:
    return driver(window=SESSION | changed.pop("window", {}), **changed)


def played(tested: Driver, *times: int) -> list[Emission]:
    """A record per time, whose value is its time; the emissions of the last one."""
    return [tested.pipe("a", str(time), time) for time in times][-1]


def together(tested: Driver, *times: int, first: int = 0) -> StepResult:
    """What one batch of such records does; their offsets begin at `first`."""
    rows = [Row(b"a", b"%d" % time, time, first + at) for at, time in enumerate(times)]
    result: StepResult = tested.state.step(Records.from_rows(rows), 1_000)
    return result


def spans(values: Any, timestamps: Any, element_offsets: Any, windows: Any, *_: Any) -> Any:
    return pa.array([b"%d-%d" % bounds for bounds in zip(windows.start, windows.end, strict=True)])


def bounds(emissions: list[Emission]) -> list[tuple[int | None, int | None]]:
    return [(emission.window_start, emission.window_end) for emission in emissions]


def elements(tested: Driver) -> list[bytes]:
    return [row["value"] for row in tested.held() if row["arrival"] >= 0]


def test_a_merged_session_has_the_elements_of_both_in_order_of_arrival() -> None:
    """the gap is 5: 10 and 18 are apart until 14 comes"""
    merged = played(sessions(emit="updates"), 10, 18, 11, 14)
    assert told(merged) == [None, None, [10, 18, 11, 14]]
    assert bounds(merged) == [(10, 11), (18, 18), (10, 18)]


def test_first_and_last_are_those_of_the_order_of_arrival_after_a_merge() -> None:
    tested = sessions(emit="final", aggregate={"first": True, "last": True})
    played(tested, 18, 10, 14)
    assert told(tested.advance(100)) == [{"first": 18, "last": 14}]


def test_an_evictor_acts_on_the_elements_of_the_merged_session() -> None:
    tested = sessions(emit="final", evictor={"count": 2})
    played(tested, 18, 10, 11, 14)
    assert told(tested.advance(100)) == [[11, 14]]
    by_time = sessions(emit="final", evictor={"time": "5ms"})
    played(by_time, 18, 10, 11, 14)
    assert told(by_time.advance(100)) == [[18, 14]]


def test_what_was_evicted_before_a_merge_does_not_come_back() -> None:
    tested = sessions(emit="updates", evictor={"count": 1} | AFTER)
    assert told(played(tested, 10, 11, 18)) == [[18]]
    assert told(played(tested, 14)) == [None, None, [11, 18, 14]]
    assert elements(tested) == [b"14"]


def test_records_since_a_result_are_added_up_when_sessions_are_merged() -> None:
    """every 4: two records in each of two sessions, and the one between them is the fifth"""
    tested = sessions(emit=None, every=4)
    assert played(tested, 10, 11, 18, 19) == []
    assert told(played(tested, 14)) == [[10, 11, 18, 19, 14]]


def test_a_result_is_taken_back_by_the_record_after_it() -> None:
    tested = sessions(emit=None, every=2)
    assert told(played(tested, 10, 12)) == [[10, 12]]
    assert (told(played(tested, 13)), told(played(tested, 14))) == ([None], [[10, 12, 13, 14]])


def test_a_session_of_one_time_is_not_taken_back_if_its_next_result_follows_at_once() -> None:
    at_once, later = sessions(emit="updates"), sessions(emit=None, every=2)
    assert told(played(at_once, 10, 10)) == [[10, 10]]
    assert told(played(later, 10, 10, 10)) == [None]
    assert told(played(later, 10)) == [[10, 10, 10, 10]]


def test_a_flushed_result_of_a_session_of_one_time_is_taken_back() -> None:
    """without the retraction, the result of [10, 10] would stay after the session has become [10, 12]"""
    for aggregate in ({"count": True}, {"collect": True}):
        tested = sessions(emit="on_time", aggregate=aggregate)
        played(tested, 10)
        assert len(told(tested.flush())) == 1
        assert (told(played(tested, 10)), told(played(tested, 12))) == ([None], [])


def test_a_session_with_new_bounds_has_no_result_yet() -> None:
    tested = sessions(emit=None, every=2)
    played(tested, 10, 12)
    assert next(row["value"] for row in tested.held()) == b"[10,12]"
    played(tested, 13)
    assert next(row["value"] for row in tested.held()) is None


def test_the_row_of_an_element_stays_when_its_session_changes() -> None:
    """a record that makes a session longer is one element; the rows of the other elements are not written again"""
    tested = sessions(emit="final")
    played(tested, *range(10, 20))
    changes = together(tested, 20, first=10).changes.to_pylist()
    assert [(row["op"], row["window_start"], row["window_end"], row["arrival"]) for row in changes] == [
        ("delete", 10, 19, -1),
        ("put", 10, 20, -1),
        ("put", 20, 20, 10),
    ]


def test_a_session_without_final_results_keeps_its_elements_until_it_expires() -> None:
    tested = sessions(emit="on_time", retention="50ms")
    played(tested, 10, 12)
    tested.advance(62)
    assert elements(tested) == [b"10", b"12"]
    tested.advance(63)
    assert tested.held() == []


def test_a_closed_session_drops_its_elements() -> None:
    tested = sessions(emit="final", retention="50ms")
    played(tested, 10, 12)
    assert told(tested.advance(28)) == [[10, 12]]
    assert [row["phase"] for row in tested.held()] == [2]


def test_every_never_fires_by_time() -> None:
    tested = sessions(emit=None, every=3)
    played(tested, 10, 12)
    assert tested.advance(1_000) == [] and tested.held() == []


def test_max_length_counts_for_sessions_with_elements() -> None:
    tested = sessions(emit="final", window={"max_length": "6ms"})
    played(tested, 10, 14)
    with pytest.raises(Exception, match="max_length"):
        tested.pipe("a", "17", 17)


def test_a_function_gets_the_bounds_that_the_session_had_when_it_fired() -> None:
    tested = sessions(emit="updates", aggregate={"function": f"{HERE}:spans"})
    emissions = together(tested, 10, 12, 18, 15).emissions
    assert emissions["value"].to_pylist() == [b"10-10", None, b"10-12", b"18-18", None, None, b"10-18"]


def test_a_function_evictor_sees_what_a_merged_session_still_has() -> None:
    tested = sessions(
        emit="updates", evictor={"function": "tests.operators.windowed_aggregation.test_evictors:removes_all"} | AFTER
    )
    emissions = together(tested, 10, 18, 14).emissions
    assert emissions["value"].to_pylist() == [b"[10]", b"[18]", None, None, b"[14]"]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_rows_of_a_snapshot_may_come_in_any_order(reverse: bool) -> None:
    """compaction keeps the newest row of each slot at its place: elements come before their session"""
    tested = sessions(emit="on_time", retention="100ms")
    played(tested, 10, 18, 11, 14, 40, 41, 60)
    rows = tested.state.snapshot()
    if reverse:
        rows = rows.take(list(range(rows.num_rows))[::-1])
    storage = MemoryStorage(tested.operator.layout)
    state = tested.operator.open(storage)
    state.restore(rows, tested.stream_time)
    assert state.snapshot() == tested.state.snapshot()
    assert tested.operator.damage(storage) is None


def test_rows_of_a_log_may_come_in_several_parts() -> None:
    """elements wait for their session until a later part has it"""
    tested = sessions(emit="final")
    played(tested, 10, 18, 11, 14)
    rows = tested.state.snapshot()
    storage = MemoryStorage(tested.operator.layout)
    state = tested.operator.open(storage)
    for part in (rows.slice(1), rows.slice(0, 1)):
        state.restore(part, tested.stream_time)
    assert state.snapshot() == rows
    assert tested.operator.damage(storage) is None
