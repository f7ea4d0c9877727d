"""Any bytes as harmless text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.console.texts import Shown, age_text, number_text, shown, time_text

pytestmark = pytest.mark.fast

LENGTH = 20
LETTERS = "aZ9 é\u05d0\u4e2d\U0001f600"
HARMFUL = '\x00\x1b\x7f\x85\u200b\u202e\u2066\u2028\ufeff\ue000\U000e0001<&"'
FORMS = st.sampled_from(["bytes", "string", "json"])


@given(content=st.binary(max_size=100) | st.text(LETTERS + HARMFUL, max_size=60).map(str.encode), form=FORMS)
@example(content="\u202eabc".encode(), form="string")
@example(content=b"\x1b[31m\x00", form="json")
def test_what_is_shown_has_no_character_that_cannot_be_seen_and_is_not_long(content: bytes, form: str) -> None:
    found = shown(content, form, LENGTH)  # type: ignore[arg-type]
    assert found is not None
    assert not [
        each
        for each in found.text
        if unicodedata.category(each)[0] == "C" or unicodedata.category(each) in ("Zl", "Zp")
    ]
    assert len(found.text) <= LENGTH * len("\\U0010ffff")
    assert found.size in (None, len(content))


@given(text=st.text(LETTERS, min_size=1, max_size=3 * LENGTH), form=FORMS)
def test_plain_text_is_shown_as_it_is_up_to_its_length(text: str, form: str) -> None:
    found = shown(text.encode(), form, LENGTH)  # type: ignore[arg-type]
    assert found == Shown(text[:LENGTH], size=len(text.encode()) if len(text) > LENGTH else None)


@pytest.mark.parametrize(
    ("content", "form", "text", "is_hex"),
    [
        (b"\x00\x00\x00\x07", "bytes", "00000007", True),
        (b"\xff\xfe", "string", "fffe", True),
        (b"a\x00b", "string", "a\\x00b", False),
        ("a\u202eb".encode(), "bytes", "a\\u202eb", False),
        ("\u200b".encode(), "bytes", "\\u200b", False),
        (b"a\nb", "bytes", "a\\nb", False),
        (b"<script>", "bytes", "<script>", False),
        (b"\x00\x07", "int32", "0007", True),
        (b"", "bytes", "", False),
    ],
)
def test_the_format_decides_between_text_hexadecimal_digits_and_numbers(
    content: bytes, form: str, text: str, is_hex: bool
) -> None:
    assert shown(content, form, LENGTH) == Shown(text, is_hex)  # type: ignore[arg-type]


def test_null_is_not_text() -> None:
    assert shown(None, "string", LENGTH) is None


def test_a_megabyte_is_cut_within_a_character_and_says_its_size() -> None:
    content = b"x" + "\U0001f600".encode() * 250_000
    assert shown(content, "bytes", LENGTH) == Shown("x" + "\U0001f600" * (LENGTH - 1), size=len(content))
    assert shown(b"\xff" * 10**6, "bytes", LENGTH) == Shown("ff" * (LENGTH // 2), True, 10**6)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "1970-01-01 00:00:00.000"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123"),
        (2**61, f"{2**61} ms"),
        (2**63 - 1, "never"),
    ],
)
def test_a_time_is_in_utc_or_a_number_where_no_calendar_has_it(time_ms: int | None, text: str) -> None:
    assert time_text(time_ms) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0ms"), (1_999, "1999ms"), (2_500, "2s"), (119_000, "119s"), (7_300_000, "2h"), (-5_000, "in 5s")],
)
def test_an_age_is_in_its_largest_unit_of_which_there_are_two(duration_ms: int, text: str) -> None:
    assert age_text(duration_ms) == text


def test_a_number_that_is_not_known_is_a_dash() -> None:
    assert [number_text(each) for each in (None, 1_234, 0.25)] == ["-", "1,234", "0.2"]
