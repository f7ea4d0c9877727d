"""Headers of certain names are found among those of many records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernels.record_format.named_headers import find_headers, names_of
from tidegate.kernels.record_format.record_headers import decode_headers, encode_headers

pytestmark = pytest.mark.fast

NAMES = ["trace", "t", "trace-id", "größe"]
HEADERS = st.lists(
    st.tuples(st.sampled_from([*NAMES, "", "race", "Trace"]), st.none() | st.binary(max_size=200)), max_size=6
)


def found(blocks: list[bytes]) -> list[list[bytes | None]]:
    """Return the values of each name, by record."""
    data = np.frombuffer(b"\xff".join(blocks), np.uint8)  # what is between the blocks belongs to none
    length = np.array([len(block) for block in blocks], np.int64)
    start = np.cumsum([0, *(length + 1)])[:-1].astype(np.int64)
    begin, size = find_headers(data, start, length, names_of(NAMES))
    return [
        [None if n < 0 else data[at : at + n].tobytes() for at, n in zip(*one, strict=True)]
        for one in zip(begin.T, size.T, strict=True)
    ]


@given(st.lists(HEADERS, min_size=1, max_size=5))
def test_of_several_headers_with_one_name_the_last_one_counts(records: list[list[tuple[str, bytes | None]]]) -> None:
    blocks = [encode_headers((name.encode(), value) for name, value in headers) for headers in records]
    known = [{name.decode(): value for name, value in decode_headers(block)} for block in blocks]
    assert found(blocks) == [[headers.get(name) for name in NAMES] for headers in known]


@given(HEADERS, st.integers(0, 500), st.integers(0, 255))
def test_a_damaged_block_is_read_to_the_damage_and_never_beyond_its_end(
    headers: list[tuple[str, bytes | None]], at: int, byte: int
) -> None:
    block = bytearray(encode_headers((name.encode(), value) for name, value in headers))
    if at < len(block):
        block[at] = byte
    whole, cut = found([bytes(block)]), found([bytes(block)[:at]])
    for [values] in (whole, cut):
        assert all(value is None or value in bytes(block) for value in values)
