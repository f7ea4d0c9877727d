"""The values that joins make of two values, read back by other JSON parsers."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.json_values.pairs import Strings, names_of, paired

pytestmark = pytest.mark.fast

NAMES = names_of("stream", "table")

values = st.sampled_from(
    [
        b"",
        b"x",
        b"\xff",
        b"nul",
        b'"a"',
        b" [1, 2] ",
        b'{"stream": null}',
        b"-1.5e3",
        b"null",
        b"1e400",
        b'{"":0,"":"\\ud800"}',
        b"NaN",
    ]
)
maybe = values | st.binary() | st.none()
pairs = st.lists(st.tuples(maybe, maybe, st.booleans(), st.booleans()))


def strings(listed: list[bytes | None], in_arena: list[bool]) -> Strings:
    """The values, each in one of two buffers."""
    parts: tuple[bytearray, bytearray] = (bytearray(b"12"), bytearray(b'"'))
    start, length = np.zeros((2, len(listed)), np.int64)
    for at, (value, arena) in enumerate(zip(listed, in_arena, strict=True)):
        start[at] = ~len(parts[1]) if arena else len(parts[0])
        length[at] = -1 if value is None else len(value)
        parts[arena].extend(value or b"")
    data, arena_bytes = (np.frombuffer(bytes(part), np.uint8) for part in parts)
    return Strings(data, arena_bytes, start, length)


def side(name: str, value: bytes | None) -> dict[str, Any]:
    """What the object has of a value."""
    if value is None:
        return {name: None}
    try:
        return {name: json.loads(value.decode(), parse_constant=not_in_the_grammar)}
    except ValueError:
        return {f"{name}_bytes": base64.b64encode(value).decode()}


def not_in_the_grammar(constant: str) -> Any:
    """NaN and Infinity, which Python's parser takes beyond RFC 8259. What the grammar allows stays, though some parsers
    refuse it: a number beyond all floats, half of a surrogate pair."""
    raise ValueError(constant)


@given(pairs=pairs)
def test_a_pair_is_one_object_with_json_unchanged_and_other_values_as_base64(pairs: list[Any]) -> None:
    streams, tables, first, second = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([],) * 4
    versions = [-1 if table is None else tables.index(table) for table in tables]
    found = paired(strings(streams, first), strings(tables, second), np.array(versions, np.int64), NAMES).to_pylist()
    wanted = [side("stream", stream) | side("table", table) for stream, table in zip(streams, tables, strict=True)]
    assert [json.loads(text) for text in found] == wanted
    assert [list(json.loads(text)) for text in found] == [list(row) for row in wanted]


def test_json_stays_byte_for_byte_the_same() -> None:
    text = '{ "é":1.10,\t"a":"\\u00e9" }'.encode()
    assert paired(strings([text], [False]), strings([text], [True]), np.zeros(1, np.int64), NAMES).to_pylist() == [
        b'{"stream":' + text + b',"table":' + text + b"}"
    ]
