"""Hypothesis strategies for histories and configurations.

Alphabets and numbers are small, so that keys repeat, timestamps tie and bounds are reached; offsets have gaps, as in a
compacted topic. A history spans a few milliseconds, at the epoch, around the present or at the end of the time range.
Occasionally an hour passes, or the longest duration is configured.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.config import OperatorRules
from tidegate.contracts.event_time import ALWAYS, MAX_TIME, NO_TIMESTAMP, parse_duration_ms
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.stream_table_join import StreamTableJoinConfig
from tidegate.operators.stream_table_join.config import StreamTableJoinRules
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.windowed_aggregation import WindowedAggregationConfig
from tidegate.testing.laws import Advance, Clock, Event, Flush, Hold, Table

FIRST_OFFSET, GAP = 5, 3

keys = st.sampled_from([b"a", b"b", b"ab", b"", b"\x00", b"\xff\x00\xfe", b"a longer key than the others", None])
values = st.sampled_from([b"", b"x", b"yy", b"zzz", b"a value of more than thirty-two bytes", None])
json_values = st.sampled_from([b"1", b'"a"', b' {"a": [1, null]}\n', b'"\xc3\xa9"', b'"\xff"', b"nulL", b"01"])
_soon = st.integers(0, 20)
HOUR = 3_600_000
timestamps = st.one_of(
    _soon, _soon, st.sampled_from([-1, 0, 7, 1_000, HOUR, HOUR + 7, MAX_TIME, MAX_TIME + 1, 2**63 - 1, NO_TIMESTAMP])
)
_epochs = st.sampled_from([0, 0, 0, 1_700_000_000_000, 1_700_000_000_000, MAX_TIME - 30])
_lengths = st.sampled_from([1, 1, 1, 1, 3])
"""Factors for the maximum length of a history."""
_one_header = b"\x02\x02h\x02v"
headers = st.sampled_from([b"", b"", _one_header])
cuts = st.sets(st.integers(0, 30))

_records = st.tuples(keys, values, timestamps, headers)
_clocks = st.sampled_from([Clock(ms) for ms in (0, 5, 12, 30, HOUR)])
_others = st.sampled_from([*(Advance(ms) for ms in range(10)), Advance(HOUR), Flush(), Flush(), Flush()]) | _clocks


def _mostly(usual: st.SearchStrategy[Any], *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw from `usual` in most cases, where `one_of` would draw all alternatives equally often."""
    return st.sampled_from([*[usual] * 9, *others]).flatmap(lambda chosen: chosen)


_events = _mostly(_records, _others)
_joinable = st.tuples(st.sampled_from([b"a", b"a", b"", b"a longer key", None]), json_values, _soon, headers)
_table_records = _mostly(_joinable, _records)


@st.composite
def histories(draw: st.DrawFn, max_size: int = 24, events: st.SearchStrategy[Any] = _events) -> list[Event]:
    """Mostly records, with an occasional advance, flush or clock change; or the given `events`."""
    return _placed(draw(st.lists(events, max_size=draw(_lengths) * max_size)), draw(_epochs))


def _placed(drawn: list[Any], epoch: int) -> list[Event]:
    """Give each record its offset, and shift small timestamps and clocks by `epoch`."""
    placed: list[Event] = [Clock(epoch + 12)] if epoch else []
    for at, event in enumerate(drawn):
        if isinstance(event, Clock):
            placed.append(Clock(epoch + event.ms))
        elif isinstance(event, Hold):
            placed.append(Hold(epoch + event.needs))
        elif type(event) is tuple:
            key, value, timestamp, block = event
            soon = 0 <= timestamp <= 2 * HOUR
            placed.append(Row(key, value, epoch + timestamp if soon else timestamp, _offset(at), block))
        else:
            placed.append(event)
    return placed


def table_histories() -> st.SearchStrategy[list[Event]]:
    """Histories of a table, whose readers occasionally set what they need."""
    return histories(events=_mostly(_records, _others, st.integers(-1, 20).map(Hold)))


def _offset(at: int) -> int:
    return FIRST_OFFSET + GAP * at


def _durations(largest_ms: int) -> st.SearchStrategy[str]:
    return _mostly(st.integers(0, largest_ms), st.sampled_from([MAX_TIME - 1, MAX_TIME])).map(lambda ms: f"{ms}ms")


def windowed_histories() -> st.SearchStrategy[list[Event]]:
    """Histories whose records mostly name their window."""
    return histories().flatmap(windowed)


@st.composite
def windowed(draw: st.DrawFn, history: list[Event]) -> list[Event]:
    """The history with windows added to its records: in headers, or in keys in Kafka's binary format."""
    name = draw(st.sampled_from([*[_in_headers] * 4, _in_time_keys, _in_session_keys]))
    return [
        draw(_mostly(name(event), _in_bad_headers(event), st.just(event))) if isinstance(event, Row) else event
        for event in history
    ]


def _in_headers(row: Row) -> st.SearchStrategy[Row]:
    return _window_headers(row.timestamp).map(lambda headers: row._replace(headers=headers))


def _in_bad_headers(row: Row) -> st.SearchStrategy[Row]:
    return (headers | _bad_windows).map(lambda headers: row._replace(headers=headers))


def _in_time_keys(row: Row) -> st.SearchStrategy[Row]:
    """Keys with time windows; occasionally the window starts before the epoch."""
    start = max(row.timestamp, 0) // 5 * 5
    return st.sampled_from([start] * 9 + [-1]).map(lambda start: _behind(row, start))


def _in_session_keys(row: Row) -> st.SearchStrategy[Row]:
    """Keys with sessions that end at the record; occasionally a session ends before it starts."""
    end = max(row.timestamp, 0)
    return st.sampled_from([end // 4 * 4] * 9 + [end + 1]).map(lambda start: _behind(row, end, start))


def _behind(row: Row, *bounds: int) -> Row:
    written = [min(bound, 2**63 - 1).to_bytes(8, "big", signed=True) for bound in bounds]
    return row._replace(key=None if row.key is None else row.key + b"".join(written))


_table_windows = st.sampled_from([None, None, "headers", "headers", "headers"])
_all_windows: list[Any] = ["none", "ignore", "headers", "headers", "session", {"time": "5ms"}, {"time": "8ms"}]


@st.composite
def _window_headers(draw: st.DrawFn, timestamp: int) -> bytes:
    """Mostly a window that contains the timestamp; sometimes one far away, as if timestamps were append times."""
    size = draw(st.sampled_from([5, 5, 5, 8]))
    start = max(timestamp - draw(st.sampled_from([0, 0, 0, 0, 0, -7, 12, 1_000])), 0) // size * size
    return _bounds(b"%d" % start, b"%d" % (start + size))


def _bounds(start: bytes | None, end: bytes | None) -> bytes:
    names = HEADER_WINDOW_START.encode(), HEADER_WINDOW_END.encode()
    return encode_headers([(b"h", b"v"), (names[0], b"0"), (names[1], end), (names[0], start)])


_bad_windows = st.sampled_from(
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
def suppression_configs(draw: st.DrawFn) -> SuppressionConfig:
    """Any valid configuration."""
    raw: dict[str, Any] = {
        "input": "records",
        "bytes_of": draw(st.sampled_from(["value", "record"])),
        "max_ahead": draw(st.none() | _durations(10)),
    }
    if draw(st.integers(0, 2)) == 0:
        strict = st.sampled_from(["shut_down", "spill"])
        buffer = draw(st.none() | _buffers().map(lambda bounds: bounds | {"when_full": draw(strict)}))
        raw |= {"until": "window_close", "grace": draw(_durations(12)), "buffer": buffer}
        raw["windows"] = draw(st.sampled_from(_all_windows[2:]))
        return SuppressionConfig.model_validate(raw)
    raw["windows"] = draw(st.sampled_from([None, *_all_windows]))
    timers = ["first_update", "last_update", *(["window_end", None] if raw["windows"] in _all_windows[2:] else [])]
    raw["timer"] = draw(st.sampled_from(timers))
    raw["max_lateness"] = draw(st.none() | _durations(10))
    if buffer := draw(st.none() | _buffers()):
        raw["buffer"] = buffer
    if not buffer or buffer["when_full"] == "spill" or draw(st.booleans()):
        raw["until"] = {"time_limit": draw(_durations(12))}
    return SuppressionConfig.model_validate(raw)


@st.composite
def _buffers(draw: st.DrawFn) -> dict[str, Any]:
    bounds = draw(st.sampled_from([("max_keys",), ("max_bytes",), ("max_keys", "max_bytes")]))
    limits = {"max_keys": st.integers(0, 4), "max_bytes": st.integers(0, 40)}
    when_full = draw(st.sampled_from(["emit", "emit", "shut_down", "shut_down", "spill"]))
    return {name: draw(limits[name]) for name in bounds} | {"when_full": when_full}


@st.composite
def table_history_configs(draw: st.DrawFn) -> TableHistoryConfig:
    """Any valid configuration; mostly one that keeps a history."""
    kept = draw(st.sampled_from(["history", "history", "history", "latest"]))
    raw: dict[str, Any] = {"input": "records", "max_ahead": draw(st.none() | _durations(10))}
    raw |= {"versions": "latest"} if kept == "latest" else {"history_retention": draw(_durations(15))}
    raw["windows"] = draw(st.sampled_from([None, *_all_windows]))
    return TableHistoryConfig.model_validate(raw)


@st.composite
def stream_table_join_configs(draw: st.DrawFn) -> StreamTableJoinConfig:
    """Any valid configuration."""
    raw: dict[str, Any] = {
        "input": "records",
        "table": "table",
        "join": draw(st.sampled_from(["inner", "left"])),
        "max_ahead": draw(st.none() | _durations(10)),
        "joiner": draw(st.sampled_from([None, None, "tidegate.testing.joiners:dashed"])),
        "windows": draw(st.sampled_from([None, *_all_windows, "headers"])),
        "before_history": "join",
    }
    if grace := draw(st.none() | _mostly(st.integers(0, 12), st.just(MAX_TIME))):
        raw |= {"grace": f"{grace}ms", "wait_for_table": draw(st.none() | _durations(5))}
    elif grace == 0:
        raw["grace"] = 0
    return StreamTableJoinConfig.model_validate(raw)


@st.composite
def _tables(draw: st.DrawFn, epoch: int) -> Table:
    """A table of a few records with offsets of their own."""
    placed = _placed(draw(st.lists(_table_records, max_size=12)), epoch)
    rows = [event._replace(headers=b"") if isinstance(event, Row) else event for event in placed]
    windows = draw(_table_windows)
    told = draw(windowed(rows)) if windows else rows
    config = draw(table_history_configs()).model_copy(update={"windows": windows or "none"})
    open_until = draw(st.just(ALWAYS) | st.integers(epoch - 1, epoch + 30))
    return Table(config, tuple(row for row in told if isinstance(row, Row)), open_until)


def readable(history: list[Event], config: OperatorRules) -> list[Event]:
    """Make the history's tables valid for the operator: their keys have windows exactly if the operator's keys have."""
    if not isinstance(config, StreamTableJoinRules):
        return history
    windows = "headers" if config.windowed else "none"
    return [_with_windows(event, windows) if isinstance(event, Table) else event for event in history]


def _with_windows(table: Table, windows: str) -> Table:
    return table._replace(config=table.config.model_copy(update={"windows": windows}))


@st.composite
def join_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """A table, then mostly records; occasionally an advance, a flush or a new table."""
    epoch = draw(_epochs)
    events = _mostly(_joinable, _records, _others, _tables(epoch))
    stream = _placed(draw(st.lists(events, max_size=draw(_lengths) * max_size)), epoch)
    return [draw(_tables(epoch)), *draw(st.just(stream) | windowed(stream))]


_small = [b"1", b"-7", b"2.5", b'{"n": 2}', b'{"n": -0.25}', b'{"n": 10}', b'{"n": 3}', b'{"n": "x"}', b"{}", b"x"]
_large = [b"9223372036854775807", b"-9223372036854775808", b'{"n":9223372036854775807}', b'{"n":-9223372036854775807}']
_odd = [
    rb'{"n":1,"s":"\ud83d"}',
    rb'{"\u006e":4,"big":1e400}',
    b' {"n":1,"m":[{"n":2}],"n":-0} ',
    b'{"n":1e400}',
    b"NaN",
]
_numbers = st.sampled_from([*_small, *_large, *_odd])


@st.composite
def window_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Histories whose values are numbers, objects with a number, or neither."""
    history = draw(histories(max_size))
    values = draw(st.lists(_numbers | st.none(), min_size=len(history), max_size=len(history)))
    return [
        event._replace(value=value) if isinstance(event, Row) else event
        for event, value in zip(history, values, strict=True)
    ]


@st.composite
def window_configs(draw: st.DrawFn) -> WindowedAggregationConfig:
    """Any valid configuration."""
    window = draw(_windows())
    emits = ["updates"] if "unlimited" in window else ["updates", "on_time", "final", "final"]
    raw: dict[str, Any] = {
        "input": "records",
        "window": window,
        "aggregate": draw(_aggregates()),
        "emit": draw(st.sampled_from(emits)),
        "max_ahead": draw(st.none() | _durations(10)),
    }
    if "unlimited" not in window and draw(st.booleans()):
        raw["retention"] = draw(_retentions(window))
    if raw["emit"] == "final" and draw(st.booleans()):
        raw["buffer"] = draw(_buffers()) | {"when_full": draw(st.sampled_from(["shut_down", "spill"]))}
    return WindowedAggregationConfig.model_validate(raw)


@st.composite
def _windows(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["tumbling", "hopping", "session", "session", "unlimited"]))
    if kind == "unlimited":
        return {kind: True}
    size = draw(_mostly(st.integers(1, 10), st.just(MAX_TIME)))
    window = {kind: f"{size}ms", "grace": draw(_durations(8))}
    if kind == "session" and draw(st.booleans()):
        window["max_length"] = f"{draw(st.integers(1, 20))}ms"
    return window | {"advance": f"{draw(st.integers(-(-size // 3), size))}ms"} if kind == "hopping" else window


def _retentions(window: dict[str, Any]) -> st.SearchStrategy[str | None]:
    """A retention of at least what the window needs; None if that would be longer than the maximum."""
    least = sum(parse_duration_ms(window[name]) for name in window if name not in ("advance", "max_length"))
    if least > MAX_TIME:
        return st.none()
    return st.integers(max(20, least), max(30, least)).map(lambda ms: f"{ms}ms")


def _aggregates() -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.sampled_from([True, {"field": "n"}])
    several = st.dictionaries(st.sampled_from(["sum", "min", "max", "avg"]), numbers, min_size=1)
    return st.just({"count": True}) | several | several.map(lambda found: {"count": True} | found)


@st.composite
def element_window_configs(draw: st.DrawFn) -> WindowedAggregationConfig:
    """Any valid configuration of windows that keep their elements."""
    window = draw(_windows().filter(lambda window: "session" not in window))
    emits = ["updates"] if "unlimited" in window else ["updates", "on_time", "on_time", "final"]
    emit = draw(st.sampled_from([*emits, None]))
    raw: dict[str, Any] = {
        "input": "records",
        "window": window,
        "aggregate": draw(_of_elements()),
        "emit": emit,
        "every": draw(st.integers(1, 4)) if emit is None else None,
        "max_ahead": draw(st.none() | _durations(10)),
        "evictor": draw(_evictors()),
    }
    if "unlimited" not in window and draw(st.booleans()):
        raw["retention"] = draw(_retentions(window))
    if emit == "final" and draw(st.booleans()):
        raw["buffer"] = draw(_buffers()) | {"when_full": draw(st.sampled_from(["shut_down", "spill"]))}
    return WindowedAggregationConfig.model_validate(raw)


def _of_elements() -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.dictionaries(st.sampled_from(["sum", "min", "max", "avg"]), st.just({"field": "n"}))
    parts = st.dictionaries(st.sampled_from(["first", "last", "collect"]), st.sampled_from([True, {"field": "n"}]))
    several = st.builds(lambda *found: {"count": True} | found[0] | found[1], numbers, parts)
    return st.just({"function": f"{_FUNCTIONS}:listed"}) | several | st.just({"collect": True})


@st.composite
def element_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Histories in which most records are accepted and often share a window."""
    min_size = draw(st.sampled_from([0, max_size // 3, 2 * max_size // 3]))
    max_size *= draw(_lengths)
    return _placed(
        draw(st.lists(_mostly(_elements, _records, _others), min_size=min_size, max_size=max_size)), draw(_epochs)
    )


_of_n = st.sampled_from([b'{"n":%s}' % n for n in (b"1", b"2", b"3", b"6", b"-4", b"2.50", b" 10")] + _large[2:])
_elements = st.tuples(st.sampled_from([b"a", b"a", b"b", b"a longer key"]), _of_n, _soon, headers)


@st.composite
def _evictors(draw: st.DrawFn) -> dict[str, Any]:
    when = draw(st.sampled_from([{}, {"when": "after"}]))
    kind = draw(st.sampled_from(["count", "time", "delta", "function", "both"]))
    if kind == "both":
        before, after = (f"{_FUNCTIONS}:{draw(st.sampled_from(_MASKS))}" for _ in range(2))
        return {"function": {"before": before, "after": after}}
    values: dict[str, st.SearchStrategy[Any]] = {
        "count": st.integers(0, 4),
        "time": _durations(8),
        "delta": st.fixed_dictionaries({"threshold": st.sampled_from([-1, 0, 0.5, 2, 5.25]), "distance": _DISTANCES}),
        "function": st.sampled_from(_MASKS).map(lambda name: f"{_FUNCTIONS}:{name}"),
    }
    return {kind: draw(values[kind])} | when


_FUNCTIONS = "tidegate.testing.evictors"
_MASKS = ("even", "multiple_of_3", "older_half")
_DISTANCES = st.sampled_from([{"field": "n"}, {"field": "n"}, f"{_FUNCTIONS}:length_apart"])
