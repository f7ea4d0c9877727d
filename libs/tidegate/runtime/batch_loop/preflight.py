"""Checks of topics and functions, made before a claim, with every batch, and before a change of configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.contracts.batch_metadata import BatchMeta, Ends
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import EngineError, InputTruncated, OffsetsGone, StateError, TidegateError, UserError
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient, NoSuchTopic, TopicMetadata
from tidegate.runtime.publishing.topics import configured


@dataclass(frozen=True, kw_only=True)
class Topics:
    """The operator's topics as they are in the cluster now, the inputs first: topic ids and numbers of partitions."""

    ids: dict[str, str]
    partitions: dict[str, int]


def find_topics(kafka: KafkaClient, config: OperatorConfig, known: Mapping[str, str]) -> Topics:
    """Return the topics from fresh metadata, by one request. Raise what `topics_in` raises."""
    return topics_in(kafka.existing_topics(_names(config)), config, known)


def topics_in(found: Mapping[str, TopicMetadata], config: OperatorConfig, known: Mapping[str, str]) -> Topics:
    """Return the operator's topics from metadata that was just fetched. Raise UserError if one is missing.

    Raise EngineError if a missing topic's id is `known`: it was deleted, or the broker is not fully back yet.
    """
    names = _names(config)
    for name in names:
        if name not in found:
            raise _missing(name, known.get(name), configured(config).partitions.get(name))
    return Topics(
        ids={name: found[name].id for name in names},
        partitions={name: len(found[name].leaders) for name in names},
    )


def _names(config: OperatorConfig) -> list[str]:
    return [*config.inputs, *configured(config).topics]


def _missing(name: str, known: str | None, partitions: int | None) -> TidegateError:
    missing = NoSuchTopic.named(name, partitions)
    return missing if known is None else gone(missing, f"its topic id was {known}")


def gone(error: NoSuchTopic, value: str | None = None) -> EngineError:
    """Return the error for a topic that existed before: it was deleted, or the broker is not fully back yet."""
    return EngineError(
        f"{error.problem} any more",
        value=value,
        remedy="if the topic was deleted, give the operator a new name: it starts from the beginning of the new topic",
    )


def check_topics(before: BatchMeta, config: OperatorConfig, now: Topics) -> None:
    """Raise StateError, with the remedy, if a topic changed since `before`: by name, topic id or partition count.

    Raise UserError if an output or dead-letter topic has fewer partitions than the input, or others than keys need.
    """
    if before.input and before.input_topics != list(config.inputs):
        raise StateError(
            f"the log of {before.operator} was written from another input topic",
            value=f"{', '.join(before.input_topics)}; now {', '.join(config.inputs)}",
            remedy="give the operator another name, or configure its former input topic",
        )
    for topic, topic_id in now.ids.items():
        # rule: recreated-topic
        if (known := before.topics.get(topic)) not in (None, topic_id):
            raise StateError(
                f"topic {topic} was deleted and created again since the last batch",
                value=f"topic id {topic_id}, was {known}",
                remedy=_remedy_for(topic, config),
            )
    check_equal_partitions(config, now)
    partitions = now.partitions[config.input]
    # rule: same-input-partitions
    if (had := len(before.partitions)) not in (0, partitions):
        raise StateError(
            f"topic {config.input} has a different number of partitions now",
            value=f"{partitions}, was {had}",
            remedy=f"move what is held to the partitions of its keys: tidegate rescale FILE {before.operator} "
            f"--partitions {partitions}",
        )
    outlets = configured(config)
    by_keys = outlets.partitions
    for topic, wanted in by_keys.items():
        # rule: partitions-of-keys/checked
        if now.partitions[topic] != wanted:
            raise UserError(
                "the topic whose partitions keys decide has another number of partitions",
                value=f"{topic}: {now.partitions[topic]}, configured: {wanted}",
                remedy=f"create {topic} with {wanted} partitions, or write partitions: {now.partitions[topic]}",
            )
    for topic in outlets.topics:
        # rule: enough-output-partitions
        if topic not in by_keys and now.partitions[topic] < partitions:
            role = "dead-letters" if topic == config.dead_letters else "output"
            raise UserError(
                f"the {role} topic has fewer partitions than the input",
                value=f"{topic}: {now.partitions[topic]}, {config.input}: {partitions}",
                remedy=f"give {topic} at least {partitions} partitions",
            )


def check_equal_partitions(config: OperatorConfig, now: Topics) -> None:
    """Raise UserError if the input topics have different numbers of partitions."""
    partitions = now.partitions[config.input]
    for topic in config.inputs:
        # rule: equal-input-partitions
        if now.partitions[topic] != partitions:
            raise UserError(
                "the input topics have different numbers of partitions",
                value=f"{config.input}: {partitions}, {topic}: {now.partitions[topic]}",
                remedy="give them the same number: partition by partition, their records are processed together",
            )


def check_surroundings(kafka: KafkaClient, before: BatchMeta, config: OperatorConfig) -> None:
    """Raise an error if the operator's topics or functions do not allow it to continue under the configuration.

    Raise Unavailable if no broker answers, which says nothing about the configuration.
    """
    check_topics(before, config, find_topics(kafka, config, before.topics))
    check_functions(config)


def check_functions(config: OperatorConfig) -> None:
    """Raise UserError if one of the operator's functions cannot be loaded in this process."""
    try:
        operator = operator_for(config)
        operator.open(MemoryStorage(operator.layout))
    except TidegateError:
        raise
    except Exception as error:  # a user's module may raise anything when it is imported
        raise UserError(
            f"a function of {config.kind} cannot be loaded: {type(error).__name__}: {error}",
            value=", ".join(config.functions()),
            remedy="fix its module, so that it can be imported",
        ) from error


def _remedy_for(topic: str, config: OperatorConfig) -> str:
    if topic in config.inputs:
        return "give the operator another name: its state belongs to the deleted topic"
    return (
        "give the operator another output topic to continue from here, or another name to publish everything again: "
        "the records of the deleted topic are lost"
    )


def check_nothing_lost(before: BatchMeta, starts: Ends) -> None:
    """Raise OffsetsGone, naming the ranges, if records of an input topic were deleted before they were read."""
    for topic, firsts in starts.items():
        if lost := lost_ranges(before, topic, firsts):
            raise OffsetsGone(
                f"records of {topic} were deleted before {before.operator} had read them",
                value="; ".join(f"partition {p}: offsets {start} to {end - 1}" for p, (start, end) in lost.items()),
                remedy=f"restore them, or accept the loss, which the log then records: {_skip(before, topic, lost)}",
            )


def _skip(before: BatchMeta, topic: str, ranges: Mapping[int, tuple[int, int]]) -> str:
    """Return the command that skips the ranges; it names the topic if that is not the first input topic."""
    named = "" if topic == before.input else f"--topic {topic} "
    written = " ".join(f"{partition}:{start}-{end}" for partition, (start, end) in ranges.items())
    return f"tidegate skip FILE {before.operator} {named}{written}"


def check_nothing_truncated(kafka: KafkaClient, before: BatchMeta) -> None:
    """Raise InputTruncated, naming the ranges, if an input topic lost records after they were read."""
    for topic in before.input_topics:
        if ranges := truncated_ranges(kafka, before, topic):
            lost = (f"partition {p}: offsets {end} to {reached - 1}" for p, (reached, end) in ranges.items())
            raise InputTruncated(
                f"{topic} has lost records after {before.operator} had read them: after an unclean "
                "leader election, for example, or because a broker was restored from a copy",
                value="; ".join(lost),
                remedy="restore them, or continue with the records that are at these offsets now: "
                + _skip(before, topic, ranges),
            )


def truncated_ranges(kafka: KafkaClient, before: BatchMeta, topic: str) -> dict[int, tuple[int, int]]:
    """Return (next offset, end of the records that were read and still exist) of each partition that was truncated.

    A truncated partition may have grown past the next offset again, with other records: leader epochs reveal that.
    """
    read, ends = before.readings(topic), offsets.latest(kafka, topic)
    reached = {p: at.next_offset for p, at in read.items()}
    known = {p: at.leader_epoch for p, at in read.items() if at.leader_epoch >= 0}
    # rule: truncated-input/ranges
    ends |= {p: min(end, ends[p]) for p, end in offsets.epoch_ends(kafka, topic, known).items() if p in ends}
    return {p: (reached[p], end) for p, end in sorted(ends.items()) if p in reached and end < reached[p]}


def remaining_epochs(
    kafka: KafkaClient, before: BatchMeta, topic: str, ranges: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """Return, for each partition that skips back, the leader epoch of the last record that was read and still exists.

    Partitions whose epoch is not known are left out.
    """
    back = {p: end for p, (reached, end) in ranges.items() if end < reached}
    read = before.readings(topic)
    known = {p: read[p].leader_epoch for p in back}
    found = {p: offsets.epoch_before(kafka, topic, p, back[p], epoch) for p, epoch in known.items() if epoch >= 0}
    return {p: epoch for p, epoch in found.items() if epoch is not None}


def lost_ranges(before: BatchMeta, topic: str, starts: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return per partition the offsets [from, to) of the topic that were deleted before they were read."""
    offsets = {p: at.next_offset for p, at in before.readings(topic).items()}
    return {p: (offsets[p], start) for p, start in sorted(starts.items()) if p in offsets and offsets[p] < start}
