"""Text for people, made of bytes, times and numbers.

Keys and values come from anybody who may write to a topic. What is returned here has no control characters and none
that reorder text or hide it, and its length is limited. Templates escape markup.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.event_time import MAX_TIMESTAMP, format_duration_ms

KEY_LENGTH, VALUE_LENGTH = 120, 1_000
"""How many characters of a key and of a value are shown."""

_UTF8_BYTES = 4
"""The most bytes of a character in UTF-8."""

_INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Categories of characters that are shown by their numbers: controls, bidirectional ones too, and unassigned ones."""

_LAST_MS = 253_402_300_799_999
"""The last millisecond of year 9999, the last year that Python knows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Shown(NamedTuple):
    """Text that stands for bytes. `is_hex`: it is hexadecimal. `size`: the number of all bytes if some are cut."""

    text: str
    is_hex: bool = False
    size: int | None = None


def shown(content: bytes | None, form: ShownAs, length: int) -> Shown | None:
    """Return the text for a key or value of that format, cut to `length` characters; None for null.

    What is not UTF-8 is hexadecimal; so are control characters in the format `bytes`. In the formats `string` and
    `json` they are escaped, as are in any format characters that cannot be seen or that reorder text.
    """
    if content is None:
        return None
    text = _decoded(content[: length * _UTF8_BYTES], whole=len(content) <= length * _UTF8_BYTES)
    if text is None or (form not in ("string", "json") and _has_controls(text)):
        half = length // 2
        return Shown(content[:half].hex(), is_hex=True, size=len(content) if len(content) > half else None)
    is_cut = len(text) > length or len(content) > length * _UTF8_BYTES
    return Shown(visible(text[:length]), size=len(content) if is_cut else None)


def visible(text: str) -> str:
    """Return the text with characters that cannot be seen, or that reorder others, as escapes such as \\u202e."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    invisible = unicodedata.category(character) in _INVISIBLE
    return character.encode("unicode_escape").decode() if invisible else character


def nested_text(value: Any) -> str:
    """Return a record, a list or a map as JSON, with bytes and times in it as `plain_text` has them."""
    return json.dumps(_as_json(value), ensure_ascii=False)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list) and value and type(value[0]) is tuple:  # a map, as Arrow gives it
        return {plain_text(key): _as_json(each) for key, each in value}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else plain_text(value)


def plain_text(value: Any) -> str:
    """Return a value that is no record and no list as text: times in UTC, bytes as text or hexadecimal digits."""
    if isinstance(value, bytes):
        text = _decoded(value, whole=True)
        return f"0x{value.hex()}" if text is None or _has_controls(text) else text
    if isinstance(value, datetime):
        in_utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return in_utc.isoformat(" ", "milliseconds")
    if isinstance(value, tuple):  # an interval, as Arrow gives it
        months, days, nanoseconds = value
        return f"{months} months {days} days {nanoseconds / 1e9:g} s"
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _decoded(content: bytes, *, whole: bool) -> str | None:
    """Return the content as text; None if it is not UTF-8. If it is not whole, its last character may be cut off."""
    ends = (len(content),) if whole else range(len(content), len(content) - _UTF8_BYTES, -1)
    for end in ends:
        try:
            return content[:end].decode()
        except UnicodeDecodeError:
            continue
    return None


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" and character not in "\t\n\r" for character in text)


def time_text(time_ms: int | None) -> str:
    """Return the time in UTC; `-` if there is none, the number of a time that no calendar of Python has."""
    if time_ms is None or time_ms < 0:
        return "-"
    if time_ms >= MAX_TIMESTAMP:
        return "never"
    if not is_time(time_ms):
        return f"{time_ms} ms"
    return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def is_time(time_ms: int | None) -> bool:
    """Return whether `time_text` gives a date and a time of day."""
    return time_ms is not None and 0 <= time_ms <= _LAST_MS


def age_text(duration_ms: int) -> str:
    """Return the duration in its largest whole unit."""
    if duration_ms < 0:
        return f"in {age_text(-duration_ms)}"
    unit_ms = next((unit for unit in (86_400_000, 3_600_000, 60_000, 1_000) if duration_ms >= 2 * unit), 1)
    return format_duration_ms(duration_ms // unit_ms * unit_ms) if unit_ms > 1 else f"{duration_ms}ms"


def number_text(number: float | None) -> str:
    """Return the number with separators, `-` for None."""
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"
