"""Offsets that an input reused: offsets in the log continue to increase, and map back to the input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata import of_each, small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Raised
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_skip
from tidegate.state.raised_offsets import after_going_back, input_offsets, raised_now

pytestmark = pytest.mark.fast


@st.composite
def ways(draw: st.DrawFn) -> list[tuple[int, int]]:
    """What an operator did: it read on from an offset to another, or went back from one to another."""
    at, found = draw(st.integers(0, 2**62)), []
    for _ in range(draw(st.integers(0, 8))):
        to = draw(st.integers(at, at + 9) | st.integers(max(0, at - 9), at))
        found.append((at, to))
        at = to
    return found


@given(ways())
def test_offsets_of_the_log_are_unique_and_map_to_the_input(way: list[tuple[int, int]]) -> None:
    raised: Raised = ()
    in_the_log, read = [], []
    for start, end in way:
        if end < start:
            raised = after_going_back(raised, start, end)
        else:
            read += range(start, end)
            in_the_log += [offset + raised_now(raised) for offset in range(start, end)]
    assert in_the_log == sorted(set(in_the_log))
    assert input_offsets(raised, np.array(in_the_log, np.int64)).tolist() == read


def test_a_skip_back_raises_later_offsets_and_a_skip_forward_does_not() -> None:
    before = small_meta(input="in", next_offset={0: 100, 1: 7})
    claim = after_claim(before, attempt="b", clock=1, config="c", topics={})
    back = after_skip(claim, {0: (100, 60), 1: (7, 9)})
    assert of_each(back, "raised") == {0: ((100, 40),), 1: ()}
    again = after_skip(after_claim(back, attempt="c", clock=2, config="c", topics={}), {0: (60, 50)})
    assert of_each(again, "raised") == {0: ((100, 50),), 1: ()}
    assert BatchMeta.from_json(again.to_json()).partitions == again.partitions
