"""What a Kafka client guarantees about pending requests, on a scripted network."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaError

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import Unavailable
from tidegate.runtime.kafka import client as clients
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.kafka.request_retries import Deadline

pytestmark = pytest.mark.fast

OPTIONS = {"bootstrap.servers": "127.0.0.1:1"}


class Network:
    """In the place of kafka-python's connections: counts the calls that are under way at once."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.is_open = answer, True
        self.under_way = self.most_under_way = 0

    def send_all(self, requests: Sequence[Any], deadline: Deadline) -> list[Any]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(0.01)
        self.under_way -= 1
        return [self.answer] * len(requests)

    def close(self) -> None:
        self.is_open = False


def connected(answer: Any) -> tuple[KafkaClient, Network]:
    made, network = KafkaClient(OPTIONS), Network(answer)
    made._network = network  # type: ignore[assignment]
    return made, network


def test_every_process_and_every_thread_has_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    own, others = client(OPTIONS), list[KafkaClient]()
    thread = threading.Thread(target=lambda: others.append(client(OPTIONS)))
    thread.start()
    thread.join()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    others.append(client(OPTIONS))
    assert len({id(each) for each in (own, *others)}) == 3


def test_after_a_request_without_an_answer_all_connections_are_closed() -> None:
    """An abandoned request may still be carried out: nothing may follow it on its connection."""
    asked, network = connected(Unavailable("no answer"))
    asked._coordinators[0, "group"] = 1
    with pytest.raises(Unavailable):
        asked.send(SimpleNamespace(name="EndTxnRequest"))
    assert (network.is_open, asked._network, asked._coordinators) == (False, None, {})


def test_after_an_answer_the_connections_stay() -> None:
    asked, network = connected("yes")
    assert asked.send(SimpleNamespace(name="EndTxnRequest")) == "yes"
    assert network.is_open


def test_a_client_sends_one_request_at_a_time() -> None:
    asked, network = connected("yes")
    threads = [threading.Thread(target=lambda: asked.send(SimpleNamespace(name="Fetch"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert network.most_under_way == 1


def test_a_sent_record_is_not_sent_again() -> None:
    sent: list[Any] = []

    class Connection:
        paused = False

        async def send_request(self, request: Any, request_timeout_ms: float) -> Any:
            sent.append(request)
            raise KafkaError("the connection broke")

    async def found(*_place: object, **_options: object) -> Connection:
        return Connection()

    network = object.__new__(clients._Network)
    network._servers = "nowhere"
    network._manager = SimpleNamespace(get_connection=found)
    answering = network._answer(SimpleNamespace(name="EndTxnRequest"), 0, Deadline(0.2, SYSTEM_CLOCK))
    with pytest.raises(StopIteration) as done:
        answering.send(None)
    assert isinstance(done.value.value, Unavailable)
    assert len(sent) == 1
