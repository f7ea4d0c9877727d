"""The hash index against a dict, above all with equal fingerprints and at the wrap-around."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.collisions import SEED_WORDS, keys_with_equal_fingerprints
from tidegate.kernels import hash_index

pytestmark = pytest.mark.fast

SLOTS = 8
fingerprints = st.sampled_from([0, 1, 14, 15, 31, 2**63 - 1, -(2**63), -1])
changes = st.lists(st.tuples(st.integers(0, SLOTS - 1), fingerprints), max_size=40)


def index_of(places: int) -> hash_index.Index:
    return hash_index.Index(np.zeros(places, np.int32), SEED_WORDS)


def fingerprint_of(key: bytes) -> int:
    return int(hash_index.fingerprint(index_of(1), np.frombuffer(key, np.uint8), 0, len(key)))


def slots_with(index: hash_index.Index, prints: np.ndarray, fingerprint: int) -> set[int]:
    """All slots that probing for the fingerprint comes by."""
    found = set()
    place = hash_index.candidate(index, prints, fingerprint, hash_index.home(index, fingerprint))
    while index.places[place]:
        found.add(int(index.places[place]) - 1)
        place = hash_index.candidate(index, prints, fingerprint, hash_index.next_place(index, place))
    return found


@given(changes=changes)
def test_probing_finds_exactly_the_slots_with_the_fingerprint(changes: list[tuple[int, int]]) -> None:
    index, prints = index_of(2 * SLOTS), np.zeros(SLOTS, np.int64)
    inside: dict[int, int] = {}
    for slot, fingerprint in changes:
        if slot in inside:
            hash_index.remove(index, prints, slot)
            del inside[slot]
        else:
            prints[slot] = fingerprint
            hash_index.insert(index, prints, slot)
            inside[slot] = fingerprint
        for wanted in set(inside.values()) | {fingerprint}:
            assert slots_with(index, prints, wanted) == {at for at, its in inside.items() if its == wanted}
        assert np.count_nonzero(index.places) == len(inside)


@given(content=st.binary(max_size=40), before=st.integers(0, 3), after=st.integers(0, 9))
def test_a_fingerprint_depends_only_on_the_bytes(content: bytes, before: int, after: int) -> None:
    alone = np.frombuffer(content, np.uint8)
    inside = np.frombuffer(b"x" * before + content + b"y" * after, np.uint8)
    found = hash_index.fingerprint(index_of(1), inside, before, len(content))
    assert found == hash_index.fingerprint(index_of(1), alone, 0, len(content))


@given(keys=st.sets(st.binary(max_size=9), min_size=2), data=st.data())
def test_short_keys_have_distinct_fingerprints(keys: set[bytes], data: st.DataObject) -> None:
    key, other = data.draw(st.permutations(sorted(keys)))[:2]
    key = key[:7]
    for text in {other, key + b"\0", b"\0" + key, key[:-1]} - {key}:
        assert fingerprint_of(text) != fingerprint_of(key)


@given(left=st.binary(min_size=8, max_size=40), at=st.integers(0, 39), byte=st.integers(0, 255))
def test_bytes_are_equal_if_no_byte_differs(left: bytes, at: int, byte: int) -> None:
    right = bytearray(b"--" + left)
    right[2 + at % len(left)] = byte
    buffers = np.frombuffer(left, np.uint8), np.frombuffer(bytes(right), np.uint8)
    assert hash_index.same_bytes(buffers[0], 0, buffers[1], 2, len(left)) == (left == right[2:])


@pytest.mark.parametrize("key", ["k%06d", "customer-%06d", "%d", "%024d-and-a-tail"])
def test_keys_that_count_up_are_spread_evenly(key: str) -> None:
    index = index_of(2**15)
    homes = [int(hash_index.home(index, fingerprint_of((key % number).encode()))) for number in range(10_000)]
    assert len(set(homes)) > 7_500  # chance: 32,768 (1 - e^(-10,000 / 32,768)) = 8,620


def test_different_keys_can_have_equal_fingerprints() -> None:
    keys = keys_with_equal_fingerprints()
    assert len(set(keys)) == len(keys) >= 8
    assert len({fingerprint_of(key) for key in keys}) == 1


@given(word=st.integers(-(2**63), 2**63 - 1), flips=st.integers(1, 2**64 - 1))
def test_a_checksum_detects_every_change_of_a_word(word: int, flips: int) -> None:
    changed = np.int64(word) ^ np.array([flips], np.uint64).view(np.int64)[0]
    assert hash_index.mix(np.int64(word)) != hash_index.mix(changed)
    assert hash_index.mix(np.int64(word)) != hash_index.mix(~np.int64(word))


def test_keys_that_collide_under_one_seed_do_not_under_another() -> None:
    keys = keys_with_equal_fingerprints(1_000)
    other = hash_index.Index(np.zeros(1, np.int32), np.frombuffer(b"any other secret", np.int64))
    found = {int(hash_index.fingerprint(other, np.frombuffer(key, np.uint8), 0, len(key))) for key in keys}
    assert len(found) == len(keys)


@pytest.mark.parametrize("length", [1, 7, 8, 16, 64])
def test_every_bit_of_a_key_changes_half_of_its_place(length: int) -> None:
    index = index_of(2**16)
    rng = np.random.default_rng(length)
    changed = []
    for _ in range(200):
        key = rng.integers(0, 256, length, np.uint8)
        other = key.copy()
        other[rng.integers(length)] ^= 1 << rng.integers(8)
        homes = [int(hash_index.home(index, fingerprint_of(content.tobytes()))) for content in (key, other)]
        changed.append((homes[0] ^ homes[1]).bit_count())
    assert 6 < np.mean(changed) < 10
