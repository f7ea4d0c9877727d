"""The order in which the rows of two streams are processed, against streams that are read side by side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.stream.merging import merge_order

pytestmark = pytest.mark.fast

streams = st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=2, max_size=2)


def side_by_side(times: list[list[int]]) -> list[tuple[int, int]]:
    """The rows as (stream, place in it): the stream goes on whose time would come less far, the first one if equal."""
    found, reached, read = [], [-1, -1], [0, 0]
    while any(read[stream] < len(times[stream]) for stream in (0, 1)):
        left = [stream for stream in (0, 1) if read[stream] < len(times[stream])]
        ahead = {stream: max(reached[stream], times[stream][read[stream]]) for stream in left}
        stream = min(left, key=lambda each: (ahead[each], each))
        found.append((stream, read[stream]))
        reached[stream] = ahead[stream]
        read[stream] += 1
    return found


def rows_of(times: list[list[int]], mixed: list[int]) -> list[tuple[int, int]]:
    """The rows of both streams, mixed so that each keeps its own order."""
    chosen = [each for each in mixed if each < 2]
    places = {stream: iter(range(len(times[stream]))) for stream in (0, 1)}
    found = [(stream, at) for stream in chosen if (at := next(places[stream], None)) is not None]
    return found + [(stream, at) for stream in (0, 1) for at in places[stream]]


@given(times=streams, mixed=st.lists(st.integers(0, 1), max_size=16))
def test_rows_are_merged_as_if_both_streams_were_read_side_by_side(times: list[list[int]], mixed: list[int]) -> None:
    rows = rows_of(times, mixed)
    stream = np.array([row[0] for row in rows], np.int8)
    timestamp = np.array([times[row[0]][row[1]] for row in rows], np.int64)
    assert [rows[at] for at in merge_order(stream, timestamp)] == side_by_side(times)
