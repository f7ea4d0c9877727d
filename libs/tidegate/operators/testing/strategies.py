"""Hypothesis strategies for histories, and parts of configurations. Each operator's folder has its own.

Alphabets and numbers are small, so that keys repeat, timestamps tie and bounds are reached; offsets have gaps, as in a
compacted topic. A history spans a few milliseconds, at the epoch, around the present or at the end of the time range.
Occasionally an hour passes, or the longest duration is configured.

Strategies are cached where possible: Hypothesis takes longer to validate a new one than to draw from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.testing.laws import Advance, Clock, Event, Flush, Hold, Table

FIRST_OFFSET, GAP = 5, 3

keys = st.sampled_from([b"a", b"b", b"ab", b"", b"\x00", b"\xff\x00\xfe", b"a longer key than the others", None])
values = st.sampled_from([b"", b"x", b"yy", b"zzz", b"a value of more than thirty-two bytes", None])
json_values = st.sampled_from([b"1", b'"a"', b' {"a": [1, null]}\n', b'"\xc3\xa9"', b'"\xff"', b"nulL", b"01"])
soon = st.integers(0, 20)
HOUR = 3_600_000
timestamps = st.one_of(
    soon, soon, st.sampled_from([-1, 0, 7, 1_000, HOUR, HOUR + 7, MAX_TIME, MAX_TIME + 1, 2**63 - 1, NO_TIMESTAMP])
)
epochs = st.sampled_from([0, 0, 0, 1_700_000_000_000, 1_700_000_000_000, MAX_TIME - 30])
lengths = st.sampled_from([1, 1, 1, 1, 3])
"""Factors for the maximum length of a history."""
_one_header = b"\x02\x02h\x02v"
headers = st.sampled_from([b"", b"", _one_header])
cuts = st.sets(st.integers(0, 30))
_marked = st.one_of(st.just(set[int]()), cuts)

records = st.tuples(keys, values, timestamps, headers)
_clocks = st.sampled_from([Clock(ms) for ms in (0, 5, 12, 30, HOUR)])
others = st.sampled_from([*(Advance(ms) for ms in range(10)), Advance(HOUR), Flush(), Flush(), Flush()]) | _clocks


def mostly(usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw from `usual` in most cases, where `one_of` would draw all alternatives equally often."""
    return st.sampled_from([*[usual] * 9, *others]).flatmap(lambda chosen: chosen)


_events = mostly(records, others)


@st.composite
def histories(
    draw: st.DrawFn, max_size: int = 24, events: st.SearchStrategy[Any] = _events, min_size: int = 0
) -> list[Event]:
    """Mostly records, with an occasional advance, flush or clock change; or the given `events`."""
    return placed(draw(up_to(draw(lengths) * max_size, events, min_size)), draw(epochs))


@st.composite
def with_marks(draw: st.DrawFn, history: list[Event]) -> list[Event]:
    """The history where some records, or none, only pass their time on: as time marks and rows behind a filter do."""
    chosen = draw(_marked)
    return [
        event._replace(time_only=True) if isinstance(event, Row) and at in chosen else event
        for at, event in enumerate(history)
    ]


@st.composite
def with_pins(draw: st.DrawFn, history: list[Event], clock_ms: int) -> list[Event]:
    """The history where some tables are read by the batch of the next record, advance or flush, which ends behind that.

    `clock_ms`: the clock at the beginning. A reference knows no other end of a batch than an event that follows.
    """
    chosen, found = draw(_marked), list[Event]()
    for at, (event, behind) in enumerate(zip_longest(history, history[1:])):
        is_pinned = bool(found) and isinstance(found[-1], Table) and found[-1].shares_batch
        shares = at in chosen and isinstance(behind, Row | Advance | Flush)
        found.append(event._replace(shares_batch=True) if shares and isinstance(event, Table) else event)
        clock_ms = event.ms if isinstance(event, Clock) else clock_ms
        found += [Clock(clock_ms)] if is_pinned else []
    return found


@cache
def up_to(max_size: int, events: st.SearchStrategy[Any], min_size: int = 0) -> st.SearchStrategy[list[Any]]:
    """Draw a list of at most `max_size` of the events; most lists are little longer than `min_size`."""
    return st.lists(events, min_size=min_size, max_size=max_size)


def placed(drawn: list[Any], epoch: int) -> list[Event]:
    """Give each record its offset, and shift small timestamps and clocks by `epoch`."""
    found: list[Event] = [Clock(epoch + 12)] if epoch else []
    for at, event in enumerate(drawn):
        if isinstance(event, Clock):
            found.append(Clock(epoch + event.ms))
        elif isinstance(event, Hold):
            found.append(Hold(epoch + event.needs))
        elif type(event) is tuple:
            key, value, timestamp, block = event
            soon = 0 <= timestamp <= 2 * HOUR
            found.append(Row(key, value, epoch + timestamp if soon else timestamp, _offset(at), block))
        else:
            found.append(event)
    return found


def _offset(at: int) -> int:
    return FIRST_OFFSET + GAP * at


@cache
def durations(largest_ms: int) -> st.SearchStrategy[str]:
    return mostly(st.integers(0, largest_ms), st.sampled_from([MAX_TIME - 1, MAX_TIME])).map(lambda ms: f"{ms}ms")


@cache
def optional_durations(largest_ms: int) -> st.SearchStrategy[str | None]:
    """Draw a duration, or None."""
    return st.none() | durations(largest_ms)


def windowed_histories() -> st.SearchStrategy[list[Event]]:
    """Histories whose records mostly name their window."""
    return histories().flatmap(windowed)


@st.composite
def windowed(draw: st.DrawFn, history: list[Event]) -> list[Event]:
    """The history with windows added to its records: in headers, or in keys in Kafka's binary format."""
    ways = _WAYS[draw(_usual_ways)]
    return [draw(ways)(draw, event) if isinstance(event, Row) else event for event in history]


def _in_headers(draw: st.DrawFn, row: Row) -> Row:
    """Mostly a window that contains the timestamp; sometimes one far away, as if timestamps were append times."""
    size = draw(_window_sizes)
    start = max(row.timestamp - draw(_window_distances), 0) // size * size
    return row._replace(headers=_bounds(b"%d" % start, b"%d" % (start + size)))


def _in_bad_headers(draw: st.DrawFn, row: Row) -> Row:
    return row._replace(headers=draw(_bad_headers))


def _in_time_keys(draw: st.DrawFn, row: Row) -> Row:
    """Keys with time windows; occasionally the window starts before the epoch."""
    return _behind(row, max(row.timestamp, 0) // 5 * 5 if draw(_nearly_always) else -1)


def _in_session_keys(draw: st.DrawFn, row: Row) -> Row:
    """Keys with sessions that end at the record; occasionally a session ends before it starts."""
    end = max(row.timestamp, 0)
    return _behind(row, end, end // 4 * 4 if draw(_nearly_always) else end + 1)


def _in_nothing(_draw: st.DrawFn, row: Row) -> Row:
    return row


_Way = Callable[[st.DrawFn, Row], Row]
_usual_ways: st.SearchStrategy[_Way] = st.sampled_from([*[_in_headers] * 4, _in_time_keys, _in_session_keys])
_WAYS: dict[_Way, st.SearchStrategy[_Way]] = {
    usual: st.sampled_from([*[usual] * 9, _in_bad_headers, _in_nothing])
    for usual in (_in_headers, _in_time_keys, _in_session_keys)
}
_window_sizes = st.sampled_from([5, 5, 5, 8])
_window_distances = st.sampled_from([0, 0, 0, 0, 0, -7, 12, 1_000])
_nearly_always = st.sampled_from([*[True] * 9, False])


def _behind(row: Row, *bounds: int) -> Row:
    written = [min(bound, 2**63 - 1).to_bytes(8, "big", signed=True) for bound in bounds]
    return row._replace(key=None if row.key is None else row.key + b"".join(written))


all_windows: list[Any] = ["none", "ignore", "headers", "headers", "session", {"time": "5ms"}, {"time": "8ms"}]


def _bounds(start: bytes | None, end: bytes | None) -> bytes:
    names = HEADER_WINDOW_START.encode(), HEADER_WINDOW_END.encode()
    return encode_headers([(b"h", b"v"), (names[0], b"0"), (names[1], end), (names[0], start)])


_bad_headers = headers | st.sampled_from(
    [
        _bounds(b"5", b"4"),
        _bounds(b"5", b"9223372036854775808"),
        _bounds(b"5", b"9223372036854775807"),
        _bounds(b"-1", b"4"),
        _bounds(b"x", b"4"),
        _bounds(b"1", b""),
        _bounds(b"1", None),
    ]
)


LONG_KEY = b"k" * 65_536


def with_keys_at_edges(
    histories: st.SearchStrategy[list[Event]], twins: tuple[bytes, bytes]
) -> st.SearchStrategy[list[Event]]:
    """Replace two keys by `twins`, whose hashes collide, and a third one by a key of 64 KiB."""
    names = dict(zip((b"a", b"b", b"a longer key than the others"), (*twins, LONG_KEY), strict=True))

    def renamed(event: Any) -> Any:
        if isinstance(event, Table):
            return event._replace(rows=tuple(map(renamed, event.rows)))
        return event._replace(key=names.get(event.key or b"", event.key)) if isinstance(event, Row) else event

    return histories.map(lambda history: list(map(renamed, history)))


@st.composite
def buffers(draw: st.DrawFn) -> dict[str, Any]:
    return {name: draw(_limits[name]) for name in draw(_limited)} | {"when_full": draw(_when_full)}


_limits = {"max_keys": st.integers(0, 4), "max_bytes": st.integers(0, 40)}
_limited = st.sampled_from([("max_keys",), ("max_bytes",), ("max_keys", "max_bytes")])
_when_full = st.sampled_from(["emit", "emit", "shut_down", "shut_down", "spill"])


def readable(history: list[Event], config: OperatorRules) -> list[Event]:
    """Make the history's tables valid for the operator: their keys have windows exactly if the operator's keys have."""
    if not config.reads():
        return history
    assert isinstance(config, KeyRules)
    windows = "headers" if config.windowed else "none"
    return [_with_windows(event, windows) if isinstance(event, Table) else event for event in history]


def _with_windows(table: Table, windows: str) -> Table:
    return table._replace(config=table.config.model_copy(update={"windows": windows}))
