"""A slow reference implementation of windows with elements as in FLIP-4, for tests only.

Every window is a list of rows. A firing evicts, computes the value, and evicts again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.contracts.records import Row
from tidegate.operators.windowed_aggregation import reference as windows
from tidegate.operators.windowed_aggregation.config import (
    CountEvictor,
    DeltaEvictor,
    FunctionEvictor,
    JsonField,
    Session,
    TimeEvictor,
)
from tidegate.operators.windowed_aggregation.reference import (
    as_written,
    average,
    path_of,
    read_json,
    read_number,
    total,
)

_NUMERIC: dict[str, Callable[[list[Any]], Any]] = {"sum": total, "min": min, "max": max, "avg": average}


@dataclass
class Window(windows.Window):
    """A window whose `numbers` are its elements, as rows. `since`: how many records came since it last fired."""

    since: int = 0
    value: bytes | None = None


@dataclass
class Reference(windows.Reference):
    """One partition. `functions`: by name, what the configured functions do with a list of rows."""

    functions: Mapping[str, Callable[[list[Row]], Any]] = field(default_factory=dict)

    def flush(self) -> None:
        """Emit every pending result with cause `flush`; windows that close drop their elements."""
        super().flush()
        self._clear()

    def size(self, window: windows.Window) -> int:
        """Return the bytes of a window: its key, its bounds, and its elements with their times."""
        rows: list[Row] = window.numbers  # type: ignore[assignment]
        return len(window.key) + 16 + sum(len(row.value or b"") + 16 for row in rows)

    def _open(self, row: Row, start: int, end: int, numbers: list[dict[str, Any]]) -> windows.Window:
        assert row.key is not None
        self.windows.append(Window(row.key, start, end, row.offset, numbers))
        return self.windows[-1]

    def _merged(self, near: list[windows.Window], row: Row, start: int, end: int) -> windows.Window:
        merged = super()._merged(near, row, start, end)
        assert isinstance(merged, Window)
        rows: list[Row] = merged.numbers  # type: ignore[assignment]
        rows.sort(key=lambda element: element.offset)
        merged.since = _since(near)
        return merged

    def _tells_at_once(self, near: list[windows.Window], end: int) -> bool:
        every = self.config.every
        return super()._tells_at_once(near, end) or (every is not None and _since(near) + 1 >= every)

    def _take(self, window: windows.Window, row: Row, numbers: dict[str, Any]) -> None:
        assert isinstance(window, Window)
        window.numbers.append(row)  # type: ignore[arg-type]
        session = isinstance(self.config.window, Session)
        window.offset, window.timestamp = row.offset, window.end if session else max(window.timestamp, row.timestamp)
        window.phase = "pending"
        window.since += 1
        if self.config.aggregate.reduce is not None and len(window.numbers) > 1:
            window.numbers[:] = [row._replace(value=self.value(window.numbers))]  # type: ignore[arg-type, list-item]
        if self.config.emit == "updates" or (self.config.every and window.since >= self.config.every):
            self._tell(window, "update" if self.config.emit else "every")

    def _tell(self, window: windows.Window, cause: str) -> None:
        assert isinstance(window, Window)
        if cause == "merged":
            window.value = None
            super()._tell(window, cause)
            return
        rows: list[Row] = window.numbers  # type: ignore[assignment]
        rows[:] = [row for row, gone in zip(rows, self._evicted(rows, "before"), strict=True) if not gone]
        window.value, window.since = self.value(rows), 0
        rows[:] = [row for row, gone in zip(rows, self._evicted(rows, "after"), strict=True) if not gone]
        super()._tell(window, cause)

    def _pass_time(self, on_time: str, on_close: str) -> None:
        super()._pass_time(on_time, on_close)
        self._clear()

    def _clear(self) -> None:
        for window in self.windows:
            if window.phase == "closed":
                assert isinstance(window, Window)
                window.numbers, window.since = [], 0

    def _evicted(self, rows: list[Row], when: str) -> list[bool]:
        match self.config.evictor:
            case FunctionEvictor() as evictor:
                name = evictor.functions()[when == "after"]
                return self.functions[name](rows) if name else [False] * len(rows)
            case CountEvictor(count=count, when=moment) if moment == when:
                return [at < len(rows) - count for at in range(len(rows))]
            case TimeEvictor(time=time, when=moment) if moment == when:
                newest = max((row.timestamp for row in rows), default=0)
                return [row.timestamp <= newest - time for row in rows]
            case DeltaEvictor(delta=delta, when=moment) if moment == when:
                return [self._distance(row, rows[-1], delta.distance) >= delta.threshold for row in rows]
        return [False] * len(rows)

    def _distance(self, row: Row, last: Row, distance: object) -> float:
        if isinstance(distance, str):
            return self.functions[distance]([row, last])  # type: ignore[no-any-return]
        mine, other = (read_number(each.value, path_of(distance))[0] for each in (row, last))
        return abs(float(mine) - float(other))

    def value(self, rows: list[Row]) -> bytes:
        """Return the value computed from those elements."""
        given = self.config.aggregate
        if given.alone:
            return self.functions[given.alone](rows)  # type: ignore[no-any-return]
        found = {entry.name: _result_of(entry.kind, entry.source, rows) for entry in given.entries}
        return as_written(found, given.gives_objects)

    def _numbers(self, row: Row) -> tuple[dict[str, Any], str]:
        found, reason = super()._numbers(row)
        if self.config.aggregate.reduce is not None:
            return found, _unmergeable(row.value, self.config.aggregate.reduce.emits.names)
        if not reason and isinstance(self.config.evictor, DeltaEvictor):
            distance = self.config.evictor.delta.distance
            reason = "" if isinstance(distance, str) else read_number(row.value, path_of(distance))[1]
        parts = [entry.source for entry in self.config.aggregate.entries if entry.kind in ("first", "last", "collect")]
        for part in sorted(parts, key=lambda part: bool(path_of(part))):
            reason = reason or _part(row, part)[1]
        return found, reason


def _unmergeable(value: bytes | None, names: list[str]) -> str:
    """Return why a value cannot be merged whose fields of these names have to be of the type int64, or missing."""
    if value is None:
        return "value: null"
    try:
        document = read_json(value)
    except ValueError:
        return "value: not JSON"
    if not isinstance(document, dict):
        return "value: not a JSON object"
    wrong = (name for name in names if type(document.get(name)) not in (int, type(None)))
    return next((f"value: {name} is no int64" for name in wrong), "")


def _since(merged: list[windows.Window]) -> int:
    """Return how many records came to those windows since each of them fired."""
    return sum(window.since for window in merged if isinstance(window, Window))


def _result_of(name: str, spec: object, rows: list[Row]) -> str:
    if name == "count":
        return str(len(rows))
    if name in _NUMERIC:
        numbers = [read_number(row.value, path_of(spec))[0] for row in rows]
        return repr(_NUMERIC[name](numbers)).removesuffix(".0") if rows or name == "sum" else "null"
    parts = [_part(row, spec)[0] for row in rows]
    if name == "collect":
        return f"[{','.join(parts)}]"
    return parts[0 if name == "first" else -1] if parts else "null"


def _part(row: Row, spec: object) -> tuple[str, str]:
    """Return the JSON of the part, and the reason if there is none."""
    if row.value is None:
        return ("null", "") if spec is True else ("", "no value: null value")
    try:
        document = read_json(row.value)
    except ValueError:
        return "", "no value: value is not JSON"
    if not isinstance(spec, JsonField):
        return row.value.decode(), ""
    if not isinstance(document, dict):
        return "", "no value: value is not a JSON object"
    text = row.value.decode()
    for name in spec.names:
        if not isinstance(document, dict) or name not in document:
            return "", "no value: field is missing"
        document, text = document[name], _members(text)[name]
    return text, ""


def _members(text: str) -> dict[str, str]:
    """Return the texts of an object's members by name, as they are written; of equal names the last one counts."""
    members, read, at = {}, json.JSONDecoder().raw_decode, _behind_space(text, 0) + 1
    while text[at := _behind_space(text, at)] != "}":
        name, at = read(text, _behind_space(text, at + (text[at] == ",")))
        start = _behind_space(text, _behind_space(text, at) + 1)
        _, at = read(text, start)
        members[name] = text[start:at]
    return members


def _behind_space(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip(" \t\r\n"))
