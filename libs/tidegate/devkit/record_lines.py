"""Records as JSON lines: one record per line, with bytes as text if they are UTF-8, otherwise in base64.

{"key": "UA", "value": "3", "timestamp": 1357034400000, "partition": 2, "headers": [{"key": "a", "value": "b"}]}

`key_base64` and `value_base64` replace `key` and `value` for other bytes (in headers too). null is Kafka's null.
`produce` reads what `consume` writes: it accepts an `offset` and ignores it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_FIELDS = {"key", "key_base64", "value", "value_base64", "timestamp", "partition", "offset", "headers"}
_HEADER_FIELDS = {"key", "value", "value_base64"}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a topic. If `timestamp` (ms) or `partition` is None, the producer chooses it."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int | None = None
    partition: int | None = None
    offset: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class BadLine(ValueError):
    """A line that is not a record; the message says why."""


def parse_line(line: str | bytes) -> Record:
    """Return the record that the line describes. Raises BadLine if it describes none."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as cause:
        raise BadLine(f"not JSON: {cause}") from cause
    _require(isinstance(fields, dict), "not a JSON object")
    _require_known(fields, _FIELDS)
    return Record(
        key=_bytes(fields, "key"),
        value=_bytes(fields, "value"),
        timestamp=_whole_number(fields, "timestamp"),
        partition=_whole_number(fields, "partition"),
        headers=_headers(fields.get("headers", [])),
    )


def format_line(record: Record) -> str:
    """Return the record as a line, without a line end. `parse_line` returns the same record, without its offset."""
    fields = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
    headers = [{"key": key, **_text("value", value)} for key, value in record.headers]
    content = _text("key", record.key) | _text("value", record.value)
    return orjson.dumps({**fields, **content, "headers": headers}).decode()


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = f"{name}_base64"
    _require(name not in fields or encoded not in fields, f"both {name} and {encoded} are given")
    if fields.get(encoded) is not None:
        return _decoded(fields[encoded], encoded)
    text = fields.get(name)
    _require(text is None or isinstance(text, str), f"{name} is neither a string nor null")
    return None if text is None else text.encode()


def _decoded(text: object, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error) as cause:
        raise BadLine(f"{name} is not base64") from cause


def _whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    number = fields.get(name)
    whole = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 63
    _require(number is None or whole, f"{name} is not a whole number of 0 or more")
    return number


def _headers(headers: object) -> tuple[tuple[str, bytes], ...]:
    _require(isinstance(headers, list), "headers is not a list")
    return tuple(_header(header) for header in headers)  # type: ignore[attr-defined]


def _header(header: object) -> tuple[str, bytes]:
    _require(isinstance(header, dict) and isinstance(header.get("key"), str), "a header is not an object with a key")
    assert isinstance(header, dict)
    _require_known(header, _HEADER_FIELDS)
    value = _bytes(header, "value")
    if value is None:
        raise BadLine("a header has no value")
    return header["key"], value


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _require_known(fields: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(fields.keys() - known)
    _require(not unknown, f"unknown: {', '.join(unknown)} (known are {', '.join(sorted(known))})")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BadLine(otherwise)
