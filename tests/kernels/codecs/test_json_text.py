"""What is JSON, with the standard library as the oracle; and base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernels.codecs.json_text import DEPTH, base64_size, is_json, write_base64
from tidegate.operators.json_values.json_fields import FOUND, NO_FIELD, NO_JSON, NO_OBJECT, locate

pytestmark = pytest.mark.fast

AROUND = b'"[]{}, '
"""What lies before and behind a value has no say."""

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
signs = st.sampled_from(["{", "}", "[", "]", ",", ":", " ", "\t\r\n", "\\", "\\n", "\\u12aF", "\\x"])
strings = st.sampled_from(['"', '"a"', '"long enough for a word"', "\x00", "\x1f", "\x7f", "é", "日", "😀", "\ufeff"])
others = st.sampled_from(["0", "-", "1", "10", ".5", "e", "E+7", "true", "false", "null", "NaN"])
pieces = signs | strings | others


def judged(text: bytes) -> bool:
    """What the kernel says of the text."""
    data = np.frombuffer(AROUND + text + AROUND, np.uint8)
    return is_json(data, len(AROUND), len(text), np.zeros(DEPTH, np.uint8))


def parsed(text: bytes) -> bool:
    """True when the oracle reads the text."""
    try:
        json.loads(text.decode("utf-8"), parse_constant=refuse)
    except ValueError:
        return False
    return True


def refuse(name: str) -> None:
    """NaN and the infinities are extensions of the oracle."""
    raise ValueError(name)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Documents in some layout, with a byte or a piece of them changed now and then."""
    indent, plain = draw(st.none() | st.integers(0, 2)), draw(st.booleans())
    text = json.dumps(draw(documents), indent=indent, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        text = text[:start] + draw(st.binary(max_size=2) | pieces.map(str.encode)) + text[end:]
    return text


@given(text=texts() | st.lists(pieces, max_size=8).map(lambda parts: "".join(parts).encode()) | st.binary(max_size=6))
def test_bytes_are_json_when_the_oracle_reads_them(text: bytes) -> None:
    assert judged(text) == parsed(text)


names = st.sampled_from(["a", "n", "", "é", "😀", '"', "\\", "a/b", "\n"])
members = st.lists(st.tuples(names, documents), max_size=4)


@given(members=members, name=names, escaped=st.booleans(), space=st.sampled_from(["", " ", "\n\t"]), data=st.data())
def test_a_json_member_is_found_as_by_the_oracle(
    members: list[tuple[str, object]], name: str, escaped: bool, space: str, data: st.DataObject
) -> None:
    written = [f"{json.dumps(key, ensure_ascii=escaped)}{space}:{space}{json.dumps(value)}" for key, value in members]
    text = space + "{" + f"{space},{space}".join(written) + space + "}" + space
    content = np.frombuffer(AROUND + text.encode("utf-8", "surrogatepass") + AROUND, np.uint8)
    [found] = locate(content, np.array([len(AROUND)]), np.array([len(content) - 2 * len(AROUND)]), [(name,)])
    expected = dict(members)
    if name not in expected:
        assert found.code[0] == NO_FIELD
    else:
        assert found.code[0] == FOUND
        assert found.text(0).decode() == json.dumps(expected[name])


@pytest.mark.parametrize(
    ("text", "code"), [("[1]", NO_OBJECT), ("1", NO_OBJECT), ('{"b":{"a":1}}', NO_FIELD), ('{"a":1', NO_JSON)]
)
def test_a_value_without_the_member_gives_the_reason(text: str, code: int) -> None:
    [found] = locate(np.frombuffer(text.encode(), np.uint8), np.array([0]), np.array([len(text)]), [("a",)])
    assert found.code.tolist() == [code]


@pytest.mark.parametrize(
    "text", ["", " ", "1 2", "[1,]", '{"a":1,}', "{1:2}", "[", "]", '"', "tru", "01", "-", "1.", ".1", "1e"]
)
def test_texts_outside_of_the_grammar_are_not_json(text: str) -> None:
    assert not judged(text.encode())


@pytest.mark.parametrize(
    "text", ['""', " 0 ", "-0.0e-0", "[]", "{}", '[{"":[[]]}]', '"\\ud800"', '{"a":1,"a":2}', "1" * 99]
)
def test_every_text_of_the_grammar_is_json(text: str) -> None:
    assert judged(text.encode())


def decodes(text: bytes) -> bool:
    """True when the oracle decodes the text."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def some_of_four_bytes() -> Iterable[bytes]:
    """Every first byte of a long character with every second one, and third and fourth bytes at the edges."""
    edges = (0x7F, 0x80, 0xBF, 0xC0)
    for first in range(0xC0, 0x100):
        for second in range(0x70, 0xD0):
            yield from (bytes([first, second, third]) for third in edges)
            yield from (bytes([first, second, third, fourth]) for third in edges for fourth in edges)


def test_strings_must_be_valid_utf8() -> None:
    pairs = (bytes([first, second]) for first in range(0x80, 0x100) for second in range(0x100))
    for character in [*pairs, *some_of_four_bytes()]:
        whole = all(byte >= 0x20 and byte not in b'"\\' for byte in character) and decodes(character)
        assert judged(b'"' + character + b'"') == whole


def test_utf8_outside_of_strings_is_not_json() -> None:
    assert not judged("\ufeff1".encode())
    assert not judged("\u00a01".encode())


@pytest.mark.parametrize(("opening", "ending"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_followed_to_the_given_depth(opening: str, ending: str) -> None:
    inner = opening + "1" + ending
    assert judged((opening * (DEPTH - 1) + inner + ending * (DEPTH - 1)).encode())
    assert not judged((opening * DEPTH + inner + ending * DEPTH).encode())


@given(content=st.binary(max_size=40))
def test_base64_is_that_of_the_oracle(content: bytes) -> None:
    wanted = base64.b64encode(content)
    out = np.zeros(len(wanted) + 2, np.uint8)
    data = np.frombuffer(AROUND + content + AROUND, np.uint8)
    assert write_base64(data, len(AROUND), len(content), out, 1) == 1 + len(wanted)
    assert (out.tobytes(), base64_size(len(content))) == (b"\x00" + wanted + b"\x00", len(wanted))


@pytest.mark.parametrize("length", range(20))
@pytest.mark.parametrize("behind", [b"", b"1", b"7" * 20, b"a" * 20, b'"' * 20])
def test_words_that_reach_beyond_a_value_do_not_change_what_it_is(length: int, behind: bytes) -> None:
    for text in (b"1" * length, b"1." + b"5" * length, b'"' + b"a" * length, b'"' + b"a" * length + b'"'):
        data = np.frombuffer(text + behind + b" ", np.uint8)
        assert is_json(data, 0, len(text), np.zeros(DEPTH, np.uint8)) == parsed(text)


@pytest.mark.parametrize("byte", [0, 31, 32, 33, 34, 35, 47, 48, 57, 58, 91, 92, 93, 127, 128, 255])
@pytest.mark.parametrize("place", range(9))
def test_a_byte_in_a_word_ends_a_string_or_a_number_as_it_does_alone(byte: int, place: int) -> None:
    for sign in (b"0", b"a", b"\x7f", b" "):
        text = b'"' + sign * place + bytes([byte]) + sign * (8 - place) + b'"'
        assert judged(text) == parsed(text)
    number = b"1" * place + bytes([byte]) + b"1" * (8 - place)
    assert judged(number) == parsed(number)
