"""The topics that an operator writes: the configured ones, and those of its newest claim."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, Sink
from tidegate.contracts.config.operator_config import OperatorConfig, Output


class Outlets(NamedTuple):
    """The topics of an operator's emissions and that of its dead letters; without one, these rows stay in the lake."""

    outputs: tuple[Output, ...]
    dead_letters: str | None

    @property
    def topics(self) -> list[str]:
        """Return the topics, that of dead letters last."""
        return [*(output.topic for output in self.outputs), *([] if self.dead_letters is None else [self.dead_letters])]

    @property
    def partitions(self) -> dict[str, int]:
        """Return the numbers of partitions of the topics in which keys decide the partition."""
        return {output.topic: output.partitions for output in self.outputs if output.partitions is not None}

    def within(self, topics: Collection[str]) -> Outlets:
        """Return those of the outlets whose topics are among these."""
        outputs = tuple(output for output in self.outputs if output.topic in topics)
        return Outlets(outputs, self.dead_letters if self.dead_letters in topics else None)

    def lacks(self, former: Outlets) -> bool:
        """Return whether a topic of the former outlets is not here in the same role, with as many partitions for keys.

        Metadata of a pipeline without `sinks` does not say which step's emissions its topic gets.
        """
        same = {(output.topic, step, output.partitions) for output in self.outputs for step in (output.step, None)}
        moved = any((output.topic, output.step, output.partitions) not in same for output in former.outputs)
        return moved or former.dead_letters not in (None, self.dead_letters)


@dataclass(frozen=True, kw_only=True)
class OutputRoute:
    """How an operator publishes; it is the same for all batches under one claim.

    `group`: the consumer group of the input. `limits`: the largest record batch that each topic takes, in bytes.
    `times_in_values`: event times are fields of the values, and so differ from the records' timestamps in Kafka.
    """

    operator: str
    input: str
    group: str
    outlets: Outlets
    limits: Mapping[str, int]
    times_in_values: bool


class Published(NamedTuple):
    """Rows of the log that are published: those of a kind, and of a step unless that is None, from a batch on."""

    topic: str
    kind: str
    step: str | None
    since: int


def configured(config: OperatorConfig) -> Outlets:
    """Return the topics that the configuration names."""
    return Outlets(config.outputs(), config.dead_letters)


def claimed(newest: BatchMeta, config: OperatorConfig) -> Outlets:
    """Return the topics of the newest claim, without the input."""
    if newest.sinks:
        outputs = tuple(Output(topic, sink.step, sink.windows, sink.partitions) for topic, sink in newest.sinks.items())
        return Outlets(outputs, newest.dead_letters)
    others = [topic for topic in newest.topics if topic not in (*config.inputs, newest.dead_letters)]
    return Outlets(tuple(Output(topic, None, config.adds_windows()) for topic in others[:1]), newest.dead_letters)


def sinks_of(outlets: Outlets, newest: BatchMeta, batch: int) -> dict[str, Sink]:
    """Return what a claim with this batch notes of a pipeline's outputs; of another operator nothing."""
    found = {
        topic: Sink(step, batch, windows, partitions)
        for topic, step, windows, partitions in outlets.outputs
        if step is not None
    }
    # rule: publish-from-configured/sinks
    kept = {
        topic: sink._replace(since=newest.sinks[topic].since)
        for topic, sink in found.items()
        if _was(sink, topic, newest)
    }
    return found | kept


def _was(sink: Sink, topic: str, newest: BatchMeta) -> bool:
    """Return whether the topic got the emissions of that step before, too."""
    return topic in newest.sinks and newest.sinks[topic].step == sink.step


def published_rows(outlets: Outlets, newest: BatchMeta) -> list[Published]:
    """Return the rows that are published, each with the batch in which its topic was configured."""
    found = [
        Published(
            topic, "emission", step, newest.sinks[topic].since if topic in newest.sinks else newest.published_from
        )
        for topic, step, *_ in outlets.outputs
    ]
    if outlets.dead_letters is not None:
        letters = outlets.dead_letters, newest.dead_letters_from
        found += [Published(letters[0], kind, None, letters[1]) for kind in ("late", "rejected")]
    return found
