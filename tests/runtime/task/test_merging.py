"""The merge of several input topics: its order, how far it goes, and the numbers of its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.records import Records, Row
from tidegate.operators.stream_stream_join import StreamStreamJoinRules
from tidegate.runtime.kafka.fetch import Fetched
from tidegate.runtime.task.merging import Merged, merged, part_of, up_to_slowest
from tidegate.runtime.task.messages import InputRange

pytestmark = pytest.mark.fast

TOPICS = ("left", "right", "third")
CLOCK_MS = 50
RULES = StreamStreamJoinRules.model_validate(
    {"join": "inner", "before": 0, "after": 0, "grace": 0, "max_ahead": "10ms"}
)

Topic = list[Row]

times = st.one_of(st.integers(0, 30), st.integers(0, 30), st.sampled_from([-5, 61, 1_000]))


@st.composite
def topics(draw: st.DrawFn) -> list[Topic]:
    """Two or three topics, whose offsets have gaps."""
    return [draw(topic()) for _ in range(draw(st.integers(2, 3)))]


@st.composite
def topic(draw: st.DrawFn) -> Topic:
    """A topic whose times are in no order; some are so late or so early that their records are rejected."""
    offset, rows = draw(st.integers(0, 5)), []
    for time in draw(st.lists(times, max_size=12)):
        rows.append(Row(draw(st.sampled_from([b"k", b"l", None])), b'{"n":1}', time, offset))
        offset += draw(st.sampled_from([1, 1, 2, 5]))
    return rows


def end_of(rows: Topic) -> int:
    return rows[-1].offset + 1 if rows else 0


def in_pieces(inputs: Sequence[Topic], sizes: st.DataObject | None, rules: OperatorRules = RULES) -> list[Merged]:
    """Merge the topics batch by batch; without `sizes`, in one batch."""
    ranges = [InputRange(name, 0, end_of(rows)) for name, rows in zip(TOPICS, inputs, strict=False)]
    found = list[Merged]()
    while any(each.start < each.end for each in ranges):
        found.append(one_batch(inputs, ranges, sizes, rules))
        read = found[-1]
        positions = [(read.next_offset, read.reached), *((at.next_offset, at.reached) for at in read.further.values())]
        assert any(start > each.start for (start, _), each in zip(positions, ranges, strict=True))
        ranges = [
            each._replace(start=start, reached=reached)
            for each, (start, reached) in zip(ranges, positions, strict=True)
        ]
    return found


def one_batch(
    inputs: Sequence[Topic],
    ranges: Sequence[InputRange],
    sizes: st.DataObject | None,
    rules: OperatorRules = RULES,
) -> Merged:
    parts = []
    for rows, each in zip(inputs, ranges, strict=True):
        left = [row for row in rows if row.offset >= each.start]
        count = len(left) if sizes is None else sizes.draw(st.integers(min(1, len(left)), 3))
        read = left[:count]
        next_offset = each.end if len(read) == len(left) else read[-1].offset + 1
        fetched = Fetched(records=Records.from_rows(read), next_offset=next_offset)
        parts.append(part_of(each, fetched, rules, CLOCK_MS))
    return merged(up_to_slowest(parts), rules.streams)


def origins(batches: Sequence[Merged]) -> list[tuple[int, int]]:
    """The topic and the offset of each record, in order."""
    return [
        (int(port), int(offset)) for read in batches for port, offset in zip(read.topic, read.own_offset, strict=True)
    ]


def by_the_rule(inputs: Sequence[Topic], rules: OperatorRules = RULES) -> list[tuple[int, int]]:
    """The order in which one record after the other is taken from the topic whose time has come least far."""
    left, reached, order = [list(rows) for rows in inputs], [-1] * len(inputs), []
    newest = MAX_TIME if rules.max_ahead is None else CLOCK_MS + rules.max_ahead
    while any(left):
        counting = {n: -1 if rows[0].timestamp > newest else rows[0].timestamp for n, rows in enumerate(left) if rows}
        places = {n: max(reached[n], time) for n, time in counting.items()}
        number = min(places, key=lambda n: (places[n], n))
        reached[number] = places[number]
        order.append((number, left[number].pop(0).offset))
    return order


@given(topics())
def test_records_are_taken_from_the_topic_whose_time_has_come_least_far(inputs: list[Topic]) -> None:
    assert origins(in_pieces(inputs, None)) == by_the_rule(inputs)


@given(topics(), st.data())
def test_the_cut_into_batches_does_not_change_the_order(inputs: list[Topic], data: st.DataObject) -> None:
    assert origins(in_pieces(inputs, data)) == by_the_rule(inputs)


@given(topics(), st.data())
def test_the_records_of_all_topics_are_numbered_in_turn(inputs: list[Topic], data: st.DataObject) -> None:
    read_to = 0
    for read in in_pieces(inputs, data):
        numbers = read.records.offset.tolist()
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[0] >= read_to
        read_to = read.next_offset + sum(at.next_offset for at in read.further.values())
        assert not numbers or numbers[-1] < read_to


@given(topics(), st.data())
def test_a_batch_that_was_stopped_goes_on_where_it_stopped(inputs: list[Topic], data: st.DataObject) -> None:
    ranges = [InputRange(name, 0, end_of(rows)) for name, rows in zip(TOPICS, inputs, strict=False)]
    whole = one_batch(inputs, ranges, None)
    if not len(whole.records):
        return
    at = data.draw(st.integers(0, len(whole.records) - 1))
    stopped = whole.until(int(whole.records.offset[at]))
    starts = {TOPICS[0]: (stopped.next_offset, stopped.reached)}
    starts |= {name: (reading.next_offset, reading.reached) for name, reading in stopped.further.items()}
    left = [each._replace(start=starts[each.topic][0], reached=starts[each.topic][1]) for each in ranges]
    assert origins([one_batch(inputs, left, None)]) == by_the_rule(inputs)[at:]


def test_a_topic_that_has_more_holds_the_others_back() -> None:
    """
    left   10 20 30 | more
    right  10    25 35
                    ^ may still come after left's next record
    """
    left = [Row(b"k", b"v", time, offset) for offset, time in enumerate((10, 20, 30))]
    right = [Row(b"k", b"v", time, offset) for offset, time in enumerate((10, 25, 35))]
    parts = [
        part_of(InputRange("left", 0, 9), Fetched(records=Records.from_rows(left), next_offset=3), RULES, CLOCK_MS),
        part_of(InputRange("right", 0, 3), Fetched(records=Records.from_rows(right), next_offset=3), RULES, CLOCK_MS),
    ]
    assert origins([merged(up_to_slowest(parts))]) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]
    caught_up = [parts[0]._replace(range=InputRange("left", 0, 3)), parts[1]]
    assert origins([merged(up_to_slowest(caught_up))])[-1] == (1, 2)


@pytest.mark.parametrize("streams", [1, 2])
def test_only_an_operator_of_several_streams_learns_of_which_a_record_is(streams: int) -> None:
    """Otherwise a record of the second topic would be taken for one of another input."""
    records = Records.from_rows([Row(b"k", b"v", 1, 0)])
    parts = [
        part_of(InputRange(name, 0, 1), Fetched(records=records, next_offset=1), RULES, CLOCK_MS) for name in TOPICS[:2]
    ]
    found = merged(parts, streams)
    assert found.topic.tolist() == [0, 1]
    assert (None if found.records.port is None else found.records.port.tolist()) == (None if streams == 1 else [0, 1])


def test_refused_rows_name_the_topic_and_the_offset_of_their_record() -> None:
    inputs = [[Row(b"k", b"v", 1, 7)], [Row(b"k", b"v", 0, 3), Row(b"k", b"v", 9, 5)]]
    [read] = in_pieces(inputs, None)
    raised = replace(read.records, offset=read.records.offset + 100)
    rows = pa.table({"offset": raised.offset[[0, 2]]})
    named = read.with_origins(rows, 100)
    assert named["origin_topic"].to_pylist() == ["right", "right"]
    assert named["origin_offset"].to_pylist() == [3, 5]


def test_a_row_that_no_record_caused_names_the_first_topic_and_no_offset() -> None:
    """A step of a pipeline may refuse what a table that came further, or a flush, released."""
    parts = [part_of(InputRange(name, 0, 1), nothing_read(), RULES, CLOCK_MS) for name in TOPICS[:2]]
    [read] = in_pieces([[Row(b"k", b"v", 1, 7)], [Row(b"k", b"v", 0, 3)]], None)
    for batch, causes in ((merged(parts), [-1]), (read, [-1, int(read.records.offset[0]) + 100])):
        step = ["step:slow"] * len(causes)
        named = batch.with_origins(pa.table({"offset": [5] * len(causes), "source": causes, "topic": step}), 100)
        origins = zip(named["origin_topic"].to_pylist(), named["origin_offset"].to_pylist(), strict=True)
        assert [*origins] == [("left", -1), ("right", 3)][: len(causes)]


def nothing_read() -> Fetched:
    return Fetched(records=Records.from_rows([]), next_offset=0)
