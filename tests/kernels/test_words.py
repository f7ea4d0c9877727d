"""Words and blocks of bytes, as compiled kernels read and copy them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernels.compiled import inlined, words

pytestmark = pytest.mark.fast

int64s = st.integers(-(2**63), 2**63 - 1)


@inlined
def word_at(data: Any, at: int) -> Any:
    return words.word_at(data, at)


@inlined
def product(left: int, right: int) -> Any:
    return words.product(left, right)


@inlined
def copy_ahead(source: Any, start: int, target: Any, at: int, length: int) -> None:
    words.prefetch(source, start + 1_000_000)
    words.copy_bytes(source, start, target, at, length)


@given(content=st.binary(min_size=8, max_size=20), data=st.data())
def test_a_word_is_eight_bytes_at_any_position_in_little_endian_order(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 8))
    expected = int.from_bytes(content[at : at + 8], "little", signed=True)
    assert word_at(np.frombuffer(content, np.uint8), at) == expected


@given(left=int64s, right=int64s)
def test_a_product_wraps_round(left: int, right: int) -> None:
    assert int(product(left, right)) % 2**64 == left * right % 2**64


@given(content=st.binary(max_size=70), at=st.integers(0, 9), data=st.data())
def test_a_copy_changes_only_its_bytes_and_a_prefetch_out_of_bounds_none(
    content: bytes, at: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(content)))
    part = content[start:]
    target = np.full(100, 255, np.uint8)
    copy_ahead(np.frombuffer(content, np.uint8), start, target, at, len(part))
    assert target.tobytes() == b"\xff" * at + part + b"\xff" * (100 - at - len(part))
