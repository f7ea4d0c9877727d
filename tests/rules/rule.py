"""A rule of the commit protocol, the tests that check it, and how it is taken out of the source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Chapter(Enum):
    """Where the protocol has the rule."""

    COMMIT = "What a commit holds"
    START = "Start of a driver"
    BATCH = "A batch"
    FENCE = "The fence in Delta"
    MARK = "The mark: what has been published"
    UNCLEAR = "Fenced or timed out?"
    TRANSACTIONS = "Two transaction protocols"
    LOCAL_STATE = "Local state"
    UPKEEP = "Compaction, retention, vacuum"
    KAFKA = "Kafka client"
    KILL_POINTS = "Kill points"
    TABLES = "Tables that are read"
    KEYS = "Keys of windows"


@dataclass(frozen=True)
class Removal:
    """In `file` the text, which is there once, becomes `instead`: the program runs on, without the rule."""

    file: str
    text: str
    instead: str

    def applied_to(self, source: str) -> str:
        """The source without the rule. ValueError if the text is not there exactly once."""
        if (found := source.count(self.text)) != 1:
            raise ValueError(f"{found} times in {self.file}: {self.text!r}")
        return source.replace(self.text, self.instead)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`name` says the rule in plain words; `tests` are node ids without parameters, `file::function`.

    `later` names what brings the rule, where nothing can break it yet: then it has neither tests nor removals.
    """

    name: str
    chapter: Chapter
    tests: tuple[str, ...] = ()
    removals: tuple[Removal, ...] = ()
    later: str = ""


def tests(file: str, *names: str) -> tuple[str, ...]:
    """The node ids of tests in one file below `tests/`; `names` lack their `test_`."""
    return tuple(f"tests/{file}.py::test_{name}" for name in names)


def without(file: str, text: str, instead: str = "pass") -> Removal:
    """A removal from a file of the library."""
    return Removal(f"libs/tidegate/{file}.py", text, instead)
