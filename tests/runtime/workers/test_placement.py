"""Where workers are started, and whose partitions they have: decisions, played with executors that come and go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.workers.placement import Placement, Post, is_needed, lacking, shares, team_size

pytestmark = pytest.mark.fast

CORES = st.dictionaries(st.sampled_from([str(n) for n in range(8)]), st.integers(1, 5), min_size=1)


@given(CORES, st.integers(0, 50))
def test_each_executor_has_a_worker_and_none_more_than_cores(cores: dict[str, int], wanted: int) -> None:
    found = shares(cores, wanted)
    assert all(1 <= found[executor] <= cores[executor] for executor in cores)
    assert sum(found.values()) == min(max(wanted, len(cores)), sum(cores.values()))


@given(CORES)
def test_as_many_workers_as_cores_are_one_for_each_core(cores: dict[str, int]) -> None:
    assert shares(cores, sum(cores.values())) == cores


def test_a_worker_is_started_for_each_that_lacks_and_needed_only_where_one_lacks() -> None:
    wanted = {"a": 2, "b": 1, "c": 1}
    assert lacking(wanted, ["a", "c", "c", "gone"]) == ["a", "b"]
    assert is_needed("a", wanted, ["a"])
    assert not is_needed("c", wanted, ["c"])
    assert not is_needed("gone", wanted, [])


def test_in_an_object_store_two_workers_do_as_long_as_they_can() -> None:
    assert [team_size(n, is_local=False, limit=None) for n in (1, 100, 101, 1_000)] == [2, 2, 3, 20]
    assert team_size(100, is_local=True, limit=None) is None
    assert team_size(100, is_local=False, limit=7) == team_size(100, is_local=True, limit=7) == 7


def posts(sizes: dict[str, int]) -> list[Post]:
    return [Post(place, str(number)) for place, size in sizes.items() for number in range(size)]


@given(st.text(max_size=3), CORES, st.integers(1, 10), st.integers(1, 60))
def test_a_team_has_no_more_workers_than_its_limit_and_is_the_same_after_a_restart(
    operator: str, sizes: dict[str, int], limit: int, partitions: int
) -> None:
    found = Placement(operator).settle(range(partitions), sizes, posts(sizes), limit)
    assert found.keys() == set(range(partitions))
    assert len(set(found.values())) <= limit
    assert len({home.place for home in found.values()}) == min(limit, len(sizes), partitions)
    backwards = dict(reversed(sizes.items()))
    assert Placement(operator).settle(range(partitions), backwards, posts(backwards), limit) == found


def test_teams_of_many_operators_are_spread_over_all_workers() -> None:
    sizes = {f"node-{number}": 8 for number in range(20)}
    teams = [set(Placement(f"op-{n}").settle(range(100), sizes, posts(sizes), 2).values()) for n in range(100)]
    assert all(len(team) == 2 for team in teams)
    busiest = max(Counter(home for team in teams for home in team).values())
    assert busiest <= 6
    assert len({home.place for team in teams for home in team}) == 20


class Cluster:
    """Places whose workers are lost, freeze, and come back from the dead; and an operator on them."""

    def __init__(self, chance: Random, limit: int | None) -> None:
        self.chance, self.limit = chance, limit
        self.sizes = {f"place-{number}": chance.randint(1, 3) for number in range(chance.randint(2, 5))}
        self.living = set(posts(self.sizes))
        self.placement = Placement("op")
        self.partitions = range(chance.randint(1, 40))
        self.copies: dict[str, set[int]] = {place: set() for place in self.sizes}

    def settle(self) -> dict[int, Post]:
        """The homes of now. States are there, and copies are dropped where places are told to."""
        present = {post.place for post in self.living}
        sizes = {place: self.sizes[place] for place in self.sizes if place in present}
        found = self.placement.settle(self.partitions, sizes, self.living, self.limit)
        for place, partitions in self.placement.to_drop(present).items():
            self.copies[place] -= partitions
        for partition, home in found.items():
            self.copies[home.place].add(partition)
        return found

    def lose(self) -> set[Post]:
        """A worker, or all workers of a place, are lost or frozen for too long; at least one is left."""
        victim = self.chance.choice(sorted(self.living))
        whole = self.chance.random() < 0.5
        lost = {post for post in self.living if post == victim or (whole and post.place == victim.place)}
        if lost != self.living:
            self.living -= lost
            return lost
        return set()


@given(st.randoms(use_true_random=False), st.none() | st.integers(1, 6))
def test_only_partitions_of_lost_places_move_and_no_copy_stays_where_a_partition_is_not_at_home(
    chance: Random, limit: int | None
) -> None:
    cluster = Cluster(chance, limit)
    before = cluster.settle()
    for _ in range(12):
        lost = cluster.lose()
        gone = {post.place for post in lost} - {post.place for post in cluster.living}
        after = cluster.settle()
        assert after.keys() == set(cluster.partitions)
        assert set(after.values()) <= cluster.living
        for partition, home in before.items():
            assert after[partition].place == home.place or home.place in gone
            # a small team takes a further worker at a place that stays: the disk is the same
            assert limit is not None or after[partition] == home or home in lost
        # zombies come back: as replacements with the names of the lost, and what they have is dropped or at home
        if chance.random() < 0.7:
            cluster.living |= {post for post in posts(cluster.sizes) if chance.random() < 0.8}
            back = cluster.settle()
            assert set(back.values()) <= cluster.living
            after = back
        present = {post.place for post in cluster.living}
        for place in present:
            assert cluster.copies[place] <= {p for p, home in after.items() if home.place == place}
        before = after
