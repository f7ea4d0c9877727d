"""A rule of the commit protocol, the tests that check it, and how it is taken out of the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.rules.removals import Removal
from tests.rules.tags import Place


class Chapter(Enum):
    """Where the protocol has the rule; the last two are operators, whose pages have them."""

    COMMIT = "What a commit contains"
    START = "Start of a driver"
    BATCH = "A batch"
    FENCE = "The fence in Delta"
    DRIVERS = "Who drives an operator"
    MARK = "The publication mark"
    UNCLEAR = "Fenced or timed out?"
    TRANSACTIONS = "Two transaction protocols"
    LOCAL_STATE = "Local state"
    WORKERS = "Workers that stay"
    UPKEEP = "Compaction, retention, vacuum"
    RESCALE = "Another number of partitions"
    KAFKA = "Kafka client"
    KILL_POINTS = "Kill points"
    TABLES = "Tables that are read"
    KEYS = "Keys of windows"
    DEDUPLICATE = "Deduplicate"
    STREAM_STREAM_JOIN = "Stream-stream join"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of the protocol.

    `slug` is its name in tags, `name` states it in plain words; `tests` are node ids without parameters,
    `file::function`.
    """

    slug: str
    name: str
    chapter: Chapter
    tests: tuple[str, ...]
    removals: tuple[Removal, ...]

    def tag_of(self, removal: Removal) -> str:
        """Return the tag of the statements that the removal changes."""
        return f"{self.slug}/{removal.way}" if removal.way else self.slug


class Trial(NamedTuple):
    """One removal of a rule at one of the statements with its tag."""

    rule: Rule
    removal: Removal
    place: Place


def trials(rules: Iterable[Rule], tagged: Mapping[str, Sequence[Place]]) -> list[Trial]:
    """Return the trials of the rules; `tagged` are the places of all tags."""
    return [
        Trial(rule, removal, place)
        for rule in rules
        for removal in rule.removals
        for place in tagged.get(rule.tag_of(removal), ())
    ]


def tests(file: str, *names: str) -> tuple[str, ...]:
    """Return the node ids of tests in one file below `tests/`; `names` lack their `test_`."""
    return tuple(f"tests/{file}.py::test_{name}" for name in names)
