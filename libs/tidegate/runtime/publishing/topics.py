"""The topics that an operator writes."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.schema import BatchMeta


class Outlets(NamedTuple):
    """Where an operator's emissions go, and where the records that it refuses; None: they stay in the lake."""

    output: str | None
    dead_letters: str | None

    @property
    def topics(self) -> list[str]:
        """The topics that there are."""
        return [topic for topic in self if topic is not None]


def configured(config: OperatorConfig) -> Outlets:
    """Those that the configuration names."""
    return Outlets(config.output, config.dead_letters)


def claimed(newest: BatchMeta, input: str) -> Outlets:
    """Those of the newest claim: its topics, without the input."""
    others = (topic for topic in newest.topics if topic not in (input, newest.dead_letters))
    return Outlets(next(others, None), newest.dead_letters)


def published_kinds(outlets: Outlets, newest: BatchMeta) -> dict[str, int]:
    """The kinds of rows that are published, and for each the batch in which that was configured."""
    kinds = {} if outlets.output is None else {"emission": newest.published_from}
    if outlets.dead_letters is not None:
        kinds |= dict.fromkeys(("late", "rejected"), newest.dead_letters_from)
    return kinds
