"""What a driver checks before it claims an operator. May import: contracts, runtime.kafka."""

from __future__ import annotations

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.errors import StateError, UserError
from tidegate.contracts.schema import FORMAT, BatchMeta
from tidegate.runtime.kafka.client import KafkaClient


def topic_ids(kafka: KafkaClient, config: OperatorConfig) -> dict[str, str]:
    """The ids of the operator's topics. UserError when one is missing or the output has too few partitions."""
    source = kafka.topic(config.input)
    if config.output is None:
        return {source.name: source.id}
    output = kafka.topic(config.output)
    if len(output.leaders) < len(source.leaders):
        raise UserError(
            "the output topic has fewer partitions than the input",
            value=f"{output.name}: {len(output.leaders)}, {source.name}: {len(source.leaders)}",
            remedy=f"give {output.name} at least {len(source.leaders)} partitions",
        )
    return {source.name: source.id, output.name: output.id}


def check_same_topics(before: BatchMeta, config: OperatorConfig, topics: dict[str, str], partitions: int) -> None:
    """Nothing, if the log was written from and to the very topics of now; StateError, with the way on, if not."""
    if before.offsets and config.input not in before.offsets:
        raise StateError(
            f"the log of {before.operator} was written from another input topic",
            value=f"{', '.join(before.offsets)}; now {config.input}",
            remedy="give the operator another name, or the input it had",
        )
    for topic, now in topics.items():
        if (known := before.topics.get(topic)) not in (None, now):
            raise StateError(
                f"topic {topic} was deleted and created again since the last batch",
                value=f"topic id {now}, was {known}",
                remedy="give the operator another name: its state belongs to the topic that is gone",
            )
    check_same_partitions(before, config, partitions)


def check_same_partitions(before: BatchMeta, config: OperatorConfig, partitions: int) -> None:
    """Nothing, if the input has as many partitions as the log knows of; StateError, with the way on, if not."""
    if (had := len(before.offsets.get(config.input, {}))) not in (0, partitions):
        raise StateError(
            f"topic {config.input} has another number of partitions than before",
            value=f"{partitions}, was {had}",
            remedy="keys have moved between partitions: give the operator another name, so that it starts anew",
        )


def first_meta(operator: str, table_id: str, clock: int, topic: str, starts: dict[int, int]) -> BatchMeta:
    """The metadata before the first claim: epoch 0, nothing read but the beginnings of the input."""
    return BatchMeta(
        format=FORMAT,
        operator=operator,
        table_id=table_id,
        epoch=0,
        batch=-1,
        attempt="",
        action="claim",
        clock=clock,
        config="",
        offsets={topic: starts},
    )
