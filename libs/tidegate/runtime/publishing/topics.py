"""The topics that an operator writes: the configured ones, and those of its newest claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config import AddedWindows, OperatorConfig


class Outlets(NamedTuple):
    """The topic of an operator's emissions and that of its dead letters; None: these rows stay in the lake."""

    output: str | None
    dead_letters: str | None

    @property
    def topics(self) -> list[str]:
        """Return the topics that are set."""
        return [topic for topic in self if topic is not None]


@dataclass(frozen=True, kw_only=True)
class OutputRoute:
    """How an operator publishes; it is the same for all batches under one claim.

    `group`: the consumer group of the input. `limits`: the largest record batch that each topic takes, in bytes.
    `times_in_values`: event times are fields of the values, and so differ from the records' timestamps in Kafka.
    `windows`: how emissions name their windows; None: not at all.
    """

    operator: str
    input: str
    group: str
    outlets: Outlets
    limits: Mapping[str, int]
    times_in_values: bool
    windows: AddedWindows | None


def configured(config: OperatorConfig) -> Outlets:
    """Return the topics that the configuration names."""
    return Outlets(config.output, config.dead_letters)


def claimed(newest: BatchMeta, input: str) -> Outlets:
    """Return the topics of the newest claim, without the input."""
    others = (topic for topic in newest.topics if topic not in (input, newest.dead_letters))
    return Outlets(next(others, None), newest.dead_letters)


def published_kinds(outlets: Outlets, newest: BatchMeta) -> dict[str, int]:
    """Return the kinds of rows that are published, each with the batch in which its topic was configured."""
    kinds = {} if outlets.output is None else {"emission": newest.published_from}
    if outlets.dead_letters is not None:
        kinds |= dict.fromkeys(("late", "rejected"), newest.dead_letters_from)
    return kinds
