"""Where partitions are at home, and in whose turn a worker works: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.workers.homes import homes
from tidegate.runtime.workers.messages import Site
from tidegate.runtime.workers.places import first_free, place_of
from tidegate.runtime.workers.turns import Turns

pytestmark = pytest.mark.fast

Weights = dict[str, int]
PLACES = st.dictionaries(st.sampled_from([f"machine-{n}" for n in range(6)]), st.integers(1, 4), min_size=1)
PARTITIONS = st.integers(1, 40).map(range)
SALTS = st.text(max_size=4)


def is_level(found: Mapping[int, str], weights: Weights) -> bool:
    """No place has more by weight than another one would have with one partition more."""
    loads = Counter(found.values())
    most = max(Fraction(loads[place], weights[place]) for place in weights)
    return most <= min(Fraction(loads[place] + 1, weights[place]) for place in weights)


@given(SALTS, PARTITIONS, PLACES)
def test_every_partition_has_a_home_and_every_place_its_share(salt: str, partitions: range, weights: Weights) -> None:
    found = homes(salt, partitions, {}, weights)
    assert found.keys() == set(partitions)
    assert set(found.values()) <= weights.keys()
    assert is_level(found, weights)


@given(SALTS, PARTITIONS, PLACES, st.randoms(use_true_random=False))
def test_homes_depend_on_no_order(salt: str, partitions: range, weights: Weights, random: Random) -> None:
    shuffled, places = list(partitions), list(weights)
    random.shuffle(shuffled)
    random.shuffle(places)
    assert homes(salt, shuffled, {}, {place: weights[place] for place in places}) == homes(
        salt, partitions, {}, weights
    )


@given(SALTS, PARTITIONS, PLACES)
def test_homes_of_first_partitions_do_not_depend_on_later_ones(salt: str, partitions: range, weights: Weights) -> None:
    found = homes(salt, partitions, {}, weights)
    first = partitions[: len(partitions) // 2 + 1]
    assert homes(salt, first, {}, weights) == {partition: found[partition] for partition in first}


@given(SALTS, PARTITIONS, PLACES, st.data())
def test_with_a_lost_place_only_its_partitions_move(
    salt: str, partitions: range, weights: Weights, data: st.DataObject
) -> None:
    before = homes(salt, partitions, {}, weights)
    lost = data.draw(st.sampled_from(sorted(weights)))
    left = {place: weight for place, weight in weights.items() if place != lost}
    if left:
        after = homes(salt, partitions, before, left)
        moved = {partition for partition in partitions if after[partition] != before[partition]}
        assert moved == {partition for partition in partitions if before[partition] == lost}
        assert is_level(after, left)


@given(SALTS, PARTITIONS, PLACES, st.integers(1, 4))
def test_a_new_place_gets_its_share_and_nothing_else_moves(
    salt: str, partitions: range, weights: Weights, weight: int
) -> None:
    before, grown = homes(salt, partitions, {}, weights), weights | {"new": weight}
    after = homes(salt, partitions, before, grown)
    assert {after[partition] for partition in partitions if after[partition] != before[partition]} <= {"new"}
    assert is_level(after, grown)


def test_a_replacement_takes_the_name_and_so_the_partitions_of_the_lost_place() -> None:
    taken = {("a", "10"): "a/0", ("a", "11"): "a/1", ("b", "10"): "b/0"}
    assert place_of(Site("a", "x", "11"), taken) == "a/1"
    assert place_of(Site("a", "x", "12"), taken) == "a/2"
    assert place_of(Site("c", "x", "1"), taken) == "c/0"
    del taken["a", "10"]
    assert place_of(Site("a", "x", "12"), taken) == "a/0"
    assert place_of(Site("a", "x", "/own"), taken) == place_of(Site("a", "y", "/own"), {}) == "a:/own"
    assert first_free({"0", "2"}) == "1"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_owner_has_two_turns_while_another_one_waits(steps: list[tuple[str, bool]]) -> None:
    """True: an item of the owner comes; False: a worker takes one. Items of an owner keep their order."""
    turns: Turns[tuple[str, int]] = Turns()
    waiting: list[tuple[str, int]] = []
    passed_by: dict[str, list[str]] = {}
    for number, (owner, comes) in enumerate(steps):
        if comes:
            if all(name != owner for name, _ in waiting):
                passed_by[owner] = []
            turns.add(owner, (owner, number))
            waiting.append((owner, number))
            continue
        taken = turns.take()
        assert (taken is None) == (not waiting)
        if taken is not None:
            assert taken == next(item for item in waiting if item[0] == taken[0])
            waiting.remove(taken)
            passed_by[taken[0]] = []
            for other in {name for name, _ in waiting} - {taken[0]}:
                assert taken[0] not in passed_by[other]
                passed_by[other].append(taken[0])
    assert len(turns) == len(waiting)


def test_what_is_withdrawn_waits_no_more() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "b1", "a2", "b2"):
        turns.add(item[0], item)
    assert turns.withdraw(lambda item: item[0] == "a") == ["a1", "a2"]
    assert [turns.take(), turns.take(), turns.take()] == ["b1", "b2", None]
