"""How much of a partition a batch reads."""

from __future__ import annotations

import pytest

from tidegate.runtime.batch_loop.pace import (
    FIRST_BYTES,
    LARGEST_BYTES,
    SMALLEST_BYTES,
    TARGET_S,
    next_piece,
)

pytestmark = pytest.mark.fast


def test_a_service_that_is_behind_doubles_its_batches_until_one_is_long_enough():
    pieces = [FIRST_BYTES]
    for _ in range(4):
        pieces.append(next_piece(pieces[-1], 0.1, filled=True))
    assert pieces == [4 * 2**20, 8 * 2**20, LARGEST_BYTES, LARGEST_BYTES, LARGEST_BYTES]
    assert next_piece(8 * 2**20, TARGET_S, filled=True) == 8 * 2**20


def test_a_batch_that_took_too_long_is_followed_by_smaller_ones():
    piece = LARGEST_BYTES
    for _ in range(10):
        piece = next_piece(piece, 10 * TARGET_S, filled=True)
    assert piece == SMALLEST_BYTES


def test_after_catching_up_a_service_begins_with_small_batches_again():
    assert next_piece(LARGEST_BYTES, 1.0, filled=False) == FIRST_BYTES
