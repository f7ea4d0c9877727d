"""The hash index against a dict, above all where hashes are equal or wrap round the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.collisions import keys_with_equal_hashes
from tidegate.kernels import hash_index

pytestmark = pytest.mark.fast

SLOTS = 8
hashes = st.sampled_from([0, 1, 14, 15, 31, 2**31 - 1])
changes = st.lists(st.tuples(st.integers(0, SLOTS - 1), hashes), max_size=40)


def slots_with(index: np.ndarray, hash_of: np.ndarray, hashed: int) -> set[int]:
    """All slots that probing for the hash comes by."""
    found = set()
    place = hash_index.candidate(index, hash_of, hashed, hash_index.home(index, hashed))
    while index[place]:
        found.add(int(index[place]) - 1)
        place = hash_index.candidate(index, hash_of, hashed, hash_index.next_place(index, place))
    return found


@given(changes=changes)
def test_probing_finds_exactly_the_slots_of_a_hash(changes: list[tuple[int, int]]) -> None:
    index, hash_of = np.zeros(2 * SLOTS, np.int32), np.zeros(SLOTS, np.int32)
    inside: dict[int, int] = {}
    for slot, hashed in changes:
        if slot in inside:
            hash_index.remove(index, hash_of, slot)
            del inside[slot]
        else:
            hash_of[slot] = hashed
            hash_index.insert(index, hash_of, slot)
            inside[slot] = hashed
        for wanted in set(inside.values()) | {hashed}:
            assert slots_with(index, hash_of, wanted) == {at for at, its in inside.items() if its == wanted}
        assert np.count_nonzero(index) == len(inside)


@given(content=st.binary(max_size=40), before=st.integers(0, 3))
def test_a_hash_depends_on_the_bytes_alone_and_fits_31_bits(content: bytes, before: int) -> None:
    alone = np.frombuffer(content, np.uint8)
    inside = np.frombuffer(b"x" * before + content + b"y", np.uint8)
    hashed = hash_index.hash_bytes(inside, before, len(content))
    assert hashed == hash_index.hash_bytes(alone, 0, len(content))
    assert 0 <= hashed < 2**31


def test_different_keys_can_have_equal_hashes() -> None:
    keys = keys_with_equal_hashes()
    assert len(set(keys)) == len(keys) >= 8
    assert len({hash_index.hash_bytes(np.frombuffer(key, np.uint8), 0, len(key)) for key in keys}) == 1
