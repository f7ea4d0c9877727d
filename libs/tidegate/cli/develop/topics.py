"""`tidegate topics`: create, list and describe topics."""

from __future__ import annotations

from dataclasses import asdict

import click

from tidegate.cli.shared import json_option, kafka_options, pairs, show
from tidegate.runtime.kafka.topics import TopicDescription, create_topic, describe_topics, topic_names


@click.group()
def command() -> None:
    """Create, list and describe topics."""


@command.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Kafka topic configuration; repeatable.")
@kafka_options
@json_option
def create(name: str, partitions: int, configs: tuple[str, ...], options: dict[str, str]) -> None:
    """Create a topic. By default the topic keeps all records for ever (retention.ms=-1), however old their event times
    are.

    \b
    Example:
      tidegate topics create departures --partitions 4
    """
    create_topic(options, name, partitions, pairs(configs))
    _show(describe_topics(options, [name]))


@command.command("list")
@kafka_options
@json_option
def list_topics(options: dict[str, str]) -> None:
    """List the names of all topics except Kafka's internal ones.

    \b
    Example:
      tidegate topics list
    """
    names = topic_names(options)
    show({"topics": names}, "\n".join(names))


@command.command()
@click.argument("names", nargs=-1, required=True)
@kafka_options
@json_option
def describe(names: tuple[str, ...], options: dict[str, str]) -> None:
    """Show the number of partitions, the id and the configuration of topics.

    \b
    Example:
      tidegate topics describe departures carrier-updates
    """
    _show(describe_topics(options, names))


def _show(topics: list[TopicDescription]) -> None:
    show({"topics": [asdict(topic) for topic in topics]}, "\n".join(map(_line, topics)))


def _line(topic: TopicDescription) -> str:
    configs = " ".join(f"{name}={value}" for name, value in topic.configs.items())
    return f"{topic.name}: {topic.partitions} partitions, id {topic.topic_id}, {configs or 'default configurations'}"
