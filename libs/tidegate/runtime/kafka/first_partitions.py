"""A client that shows only the first partitions of one topic, those that it had before it grew."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tidegate.runtime.kafka.client import KafkaClient, TopicMetadata

_clients: dict[tuple[int, int, str, int, frozenset[tuple[str, str]]], FirstPartitions] = {}


class FirstPartitions(KafkaClient):
    """A client for which the topic has only so many partitions."""

    def __init__(self, options: Mapping[str, str], topic: str, partitions: int) -> None:
        super().__init__(options)
        self._topic, self._partitions = topic, partitions

    def existing_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Fetch the topics' metadata; that of the topic has its first partitions alone."""
        found = super().existing_topics(names)
        if self._topic in found:
            whole = found[self._topic]
            first = {p: leader for p, leader in whole.leaders.items() if p < self._partitions}
            found[self._topic] = self._topics[self._topic] = replace(whole, leaders=first)
        return found


def first_partitions(topic: str, partitions: int) -> Callable[[Mapping[str, str]], KafkaClient]:
    """Return what makes such clients, for an environment; one per thread, as `client` does."""
    return partial(_client, topic, partitions)


def _client(topic: str, partitions: int, options: Mapping[str, str]) -> KafkaClient:
    options_of = frozenset((name, str(value)) for name, value in options.items())
    key = (os.getpid(), threading.get_ident(), topic, partitions, options_of)
    if key not in _clients:
        _clients[key] = FirstPartitions(options, topic, partitions)
    return _clients[key]
