"""Where workers are started, and which of them have the partitions of an operator. Pure decisions.

A place is a disk with local states: that of an executor, or of all executors that have the same state folder. A post is
a worker there. An operator's partitions are with its team: some posts, as each of them writes a file in each batch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from tidegate.runtime.workers.homes import homes

PARTITIONS_OF_WORKER = 50
"""How many partitions of an operator a worker has, in an object store, before a further worker gets some."""


class Post(NamedTuple):
    """A worker by the names of its place and of itself there."""

    place: str
    name: str


def shares(cores: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Return how many of the wanted workers each executor is to have.

    Each has at least one and, beyond that, no more than it has cores; those with most cores get most.
    """
    found = dict.fromkeys(cores, 1)
    while sum(found.values()) < wanted:
        free = [executor for executor in sorted(cores) if found[executor] < cores[executor]]
        if not free:
            break
        found[min(free, key=lambda executor: Fraction(found[executor], cores[executor]))] += 1
    return found


def lacking(wanted: Mapping[str, int], present: Collection[str]) -> list[str]:
    """Return the executors that lack workers, each as often as it lacks some.

    `present`: for each worker the executor where it is, or where it is being started. What an executor does not give,
    because it is frozen or lost, keeps no other one from its share.
    """
    return list((Counter(dict(wanted)) - Counter(present)).elements())


def is_needed(executor: str, wanted: Mapping[str, int], connected: Collection[str]) -> bool:
    """Return whether a worker that has come up there has a share. Spark may start it elsewhere than was asked for."""
    return Counter(connected)[executor] < wanted.get(executor, 0)


def team_size(partitions: int, *, is_local: bool, limit: int | None) -> int | None:
    """Return how many workers an operator has at most: `limit`, or by default what its lake suggests; None: all.

    In an object store each worker of a batch costs a request and a round trip, so two workers do as long as they can.
    """
    if limit is not None or is_local:
        return limit
    return max(2, -(-partitions // PARTITIONS_OF_WORKER))


@dataclass
class Placement:
    """The homes of one operator's partitions: those of now, from which the next ones follow.

    `salt`: the operator's name, so that operators have different teams, and the same ones after a restart.
    """

    salt: str
    places: dict[int, str] = field(default_factory=dict)
    posts: dict[str, dict[int, str]] = field(default_factory=dict)
    team: frozenset[Post] = frozenset()
    dropped: dict[str, frozenset[int]] = field(default_factory=dict)

    def settle(
        self, partitions: Collection[int], sizes: Mapping[str, int], present: Collection[Post], limit: int | None
    ) -> dict[int, Post]:
        """Return the home of each partition: first its place is found, then one of the posts there.

        `sizes`: how many posts each place has when none is lost, for the places that have one now. A place keeps its
        share while one of its posts lives: another one's disk does not have its states. `limit`: the size of the team.
        """
        allotted = self._places_of_team(sizes, limit)
        # equal shares in a small team: if they followed its posts, the loss of one place would move work between others
        weights = allotted if limit is None else dict.fromkeys(allotted, 1)
        self.places = homes(self.salt, partitions, self.places, weights)
        found: dict[int, Post] = {}
        self.team = frozenset(
            post for place in allotted for post in self._posts_of_team(place, allotted[place], present)
        )
        for place in allotted:
            mine = [partition for partition in partitions if self.places[partition] == place]
            names = dict.fromkeys((post.name for post in self.team if post.place == place), 1)
            self.posts[place] = homes(self.salt, mine, self.posts.get(place, {}), names)
            found |= {partition: Post(place, name) for partition, name in self.posts[place].items()}
        self.dropped = {place: partitions for place, partitions in self.dropped.items() if place in sizes}
        return found

    def to_drop(self, places: Collection[str]) -> dict[str, frozenset[int]]:
        """Return by place, once, the partitions that are at home elsewhere: their states may be dropped there.

        A place that was lost may have copies when it comes back, and so may one of which partitions have moved away.
        """
        found = {place: frozenset(p for p, home in self.places.items() if home != place) for place in places}
        found = {place: partitions for place, partitions in found.items() if self.dropped.get(place) != partitions}
        self.dropped |= found
        return {place: partitions for place, partitions in found.items() if partitions}

    def _places_of_team(self, sizes: Mapping[str, int], limit: int | None) -> dict[str, int]:
        """Return the places of the team, and how many posts it has at each: those of before, then by rendezvous."""
        if limit is None:
            return dict(sizes)
        before = {post.place for post in self.team}
        # rule: small-team
        chosen = sorted(sizes, key=lambda place: (place not in before, _score(self.salt, place)))[:limit]
        return shares({place: sizes[place] for place in chosen}, limit)

    def _posts_of_team(self, place: str, size: int, present: Collection[Post]) -> list[Post]:
        here = [post for post in present if post.place == place]
        return sorted(here, key=lambda post: (post not in self.team, _score(self.salt, place, post.name)))[:size]


def _score(*names: str) -> bytes:
    return hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
