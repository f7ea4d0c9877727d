"""The demo's checks of its windows: which counts are right, and that wrong ones are detected."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest
from rich.console import Console

from tidegate.devkit.demo.counting import Seen, Windows, differences, differences_of_results, show_checked
from tidegate.devkit.demo.departures import PARTITIONS, Departure, partition_of
from tidegate.devkit.demo.expected.counts import Counted, Record, counted

pytestmark = pytest.mark.fast

MIN_MS = 60_000
HOUR_MS = 60 * MIN_MS


def departure(carrier: str, minute: int, number: int = 0) -> Departure:
    return Departure(f"{carrier}-JFK".encode(), b'{"flight":%d}' % number, minute * MIN_MS, 0)


def hours(stream: list[Departure]) -> Counted:
    return counted(stream, lambda departure: departure.key, HOUR_MS, HOUR_MS, 2 * HOUR_MS)


def each_sequentially(stream: list[Departure], length: int, advance: int, grace: int) -> tuple[Windows, list[Record]]:
    """The same, by the words: each departure asks each window."""
    counts: Counter[tuple[bytes, int]] = Counter()
    newest: dict[int, int] = {}
    late = []
    for each in stream:
        partition = partition_of(each.key)
        newest[partition] = max(newest.get(partition, -1), each.timestamp)
        has_it = [start for start in range(0, each.timestamp + 1, advance) if each.timestamp < start + length]
        takes_it = [start for start in has_it if start + length > newest[partition] - grace]
        counts.update((each.key, start) for start in takes_it)
        late += [] if takes_it else [(each.key, each.value, each.timestamp)]
    final = {key: newest[partition_of(key)] - grace for key, _ in counts}
    return Counter((key, at, count, at + length <= final[key]) for (key, at), count in counts.items()), late


@pytest.mark.parametrize(("length", "advance", "grace"), [(60, 60, 120), (60, 10, 120), (60, 25, 0), (30, 30, 5)])
def test_the_counts_equal_a_count_of_departures_per_window(length: int, advance: int, grace: int) -> None:
    drawn = random.Random(length + advance + grace)
    stream = [departure(drawn.choice(("UA", "B6", "DL")), 100 + drawn.randrange(600), number) for number in range(300)]
    stream.sort(key=lambda each: each.timestamp + drawn.randrange(200 * MIN_MS))
    found = counted(stream, lambda each: each.key, *(minutes * MIN_MS for minutes in (length, advance, grace)))
    windows, late = each_sequentially(stream, length * MIN_MS, advance * MIN_MS, grace * MIN_MS)
    assert late
    assert differences(Seen(windows, Counter(late)), found) == []


#  key      UA 0:10  UA 0:50  UA 2:59  UA 0:55  UA 3:00  UA 0:59 (late)
STREAM = [departure("UA", minute, number) for number, minute in enumerate((10, 50, 179, 55, 180, 59))]
KEY = STREAM[0].key
WINDOWS: Windows = Counter([(KEY, 0, 3, True), (KEY, 2 * HOUR_MS, 1, False), (KEY, 3 * HOUR_MS, 1, False)])
LATE = Counter([(KEY, STREAM[5].value, STREAM[5].timestamp)])
OUTPUT: list[list[Record]] = [[] for _ in range(PARTITIONS)]
OUTPUT[partition_of(KEY)] = [(KEY, b"3", 55 * MIN_MS)]


def test_an_hour_is_closed_two_hours_after_its_end_and_then_a_departure_is_late() -> None:
    assert differences(Seen(WINDOWS, LATE), hours(STREAM)) == []
    assert differences_of_results(OUTPUT, Counter(), hours(STREAM)) == []


def test_a_wrong_count_a_missing_window_and_a_lost_late_departure_are_detected() -> None:
    wrong = Counter([(KEY, 0, 4, True), *list(WINDOWS)[1:]])
    assert differences(Seen(wrong, LATE), hours(STREAM)) == ["windows"]
    assert differences(Seen(Counter(list(WINDOWS)[1:]), LATE), hours(STREAM)) == ["windows"]
    assert differences(Seen(WINDOWS, Counter()), hours(STREAM)) == ["late departures"]


def test_a_result_repeated_in_another_order_or_filtered_wrongly_is_reported() -> None:
    of_key = partition_of(KEY)
    more = [*STREAM, departure("UA", 360)]
    right = [*OUTPUT[of_key], (KEY, b"1", 179 * MIN_MS), (KEY, b"1", 180 * MIN_MS)]
    few: Windows = Counter([(KEY, 2 * HOUR_MS, 1, True), (KEY, 3 * HOUR_MS, 1, True)])

    def different_parts(results: list[Record], filtered: Windows = few) -> list[str]:
        output = [results if number == of_key else [] for number in range(PARTITIONS)]
        return differences_of_results(output, filtered, hours(more))

    assert different_parts(right) == []
    assert different_parts([*right, right[-1]]) == ["results in the output topic"]
    assert different_parts(right[::-1]) == ["results in the output topic"]
    assert different_parts(right, Counter()) == ["results below 3"]


def test_a_difference_is_named_and_the_check_fails() -> None:
    console = Console(file=io.StringIO(), width=200)
    assert not show_checked(console, "departures_per_hour", ["windows"], hours(STREAM))
    assert "Wrong: departures_per_hour differs from pandas' counts: windows." in console.file.getvalue()
    assert show_checked(console, "departures_per_hour", [], hours(STREAM))
