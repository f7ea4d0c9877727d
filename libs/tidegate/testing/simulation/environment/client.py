"""The Kafka client of all simulated processes, whose requests can fail, time out or arrive late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tidegate.contracts.errors import TidegateError, Unavailable
from tidegate.runtime.kafka.arrivals import Positions
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.testing.simulation.clock import ProcessClock
from tidegate.testing.simulation.kafka.broker import OFFSET_RETENTION_S
from tidegate.testing.simulation.world import World

_PATIENCE_S = 10.0
_FATES = ("lost", "done", "late", "done and late")
"""Fates of a request without an answer: lost, carried out, carried out later, or carried out both now and later."""
_OUTPUT_LIMIT = 2**20
_LOOK_EVERY_S = 0.2
_ANY_REQUEST = SimpleNamespace(name="ApiVersionsRequest")


class SimulatedClient:
    """Replacement for `runtime.kafka.client.KafkaClient` in every simulated process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = ProcessClock(world.clock, world.sleep)

    def send(self, request: Any, node_id: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send the request and return the answer. Raise Unavailable if none comes."""
        answer = self._answer(request, timeout_s)
        if isinstance(answer, TidegateError):
            raise answer
        return answer

    def send_all(self, requests: Sequence[tuple[Any, int | None]], *, timeout_s: float | None = None) -> list[Any]:
        """Return the answers in order, or the error in place of a missing one. The process may die in between."""
        return [self._answer(request, timeout_s) for request, _node in requests]

    def topic(self, name: str) -> TopicMetadata:
        """Return the topic; the one broker leads all its partitions."""
        return self.existing_topics([name])[name]

    def existing_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return the topics by name, all of which exist."""
        self.probe(_PATIENCE_S)
        return {name: self._topic(name) for name in names}

    def _topic(self, name: str) -> TopicMetadata:
        partitions = [p for topic, p in self._world.broker.logs if topic == name]
        return TopicMetadata(name=name, id=f"id of {name}", leaders=dict.fromkeys(partitions, 0))

    def probe(self, timeout_s: float) -> None:
        """Check that the broker answers. Raise Unavailable if it does not."""
        self.send(_ANY_REQUEST, timeout_s=timeout_s)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the one broker for each partition."""
        return self._topic(topic).leaders

    def leader(self, topic: str, partition: int, deadline: Any) -> int:
        """Return the one broker."""
        return 0

    def forget_leaders(self, topic: str) -> None:
        """Do nothing: no leaders are cached."""

    def coordinator(self, kind: int, key: str, deadline: Any) -> int:
        """Return the one broker."""
        return 0

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Do nothing: no coordinators are cached."""

    def transaction_version(self) -> int:
        """Return the version of the transaction protocol in this run."""
        return self._world.broker.coordinator.version

    def max_message_bytes(self, topic: str) -> int:
        """Return a limit that no record of a run reaches."""
        return _OUTPUT_LIMIT

    def is_compacted(self, topic: str) -> bool:
        """Return False: no topic is compacted."""
        return False

    def offset_retention_s(self, group: str) -> float | None:
        """Return how long a group's offsets are kept after their last commit."""
        return OFFSET_RETENTION_S

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _answer(self, request: Any, timeout_s: float | None) -> Any:
        world = self._world
        world.step(f"before {request.name}")
        world.broker.tick()
        if world.broker_is_down():
            return self._none_in_time(request, timeout_s)
        if world.chance.happens("lost_answer"):
            fate = world.chance.of("fate").choice(_FATES)
            world.say("%s: no answer, %s", request.name, fate)
            if "done" in fate:
                world.broker.handle(request)
            if "late" in fate:
                world.broker.delay(request)
            return self._none_in_time(request, timeout_s)
        answer = world.broker.handle(request)
        world.say("%s: %s", request.name, answer)
        world.step(f"after {request.name}")
        return answer

    def _none_in_time(self, request: Any, timeout_s: float | None) -> Unavailable:
        self._world.sleep(min(_PATIENCE_S, _PATIENCE_S if timeout_s is None else timeout_s))
        return Unavailable(f"no answer to {request.name}; it may have been carried out nevertheless")


class SimulatedArrivals:
    """Replacement for `runtime.kafka.arrivals.LongPolls`: other processes run meanwhile, and any wait may end early."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wait(self, positions: Positions, *, longest_s: float, interrupted: Callable[[], bool]) -> None:
        """Let time pass until a partition has records at its position or above, in steps that others can use."""
        until = self._world.clock.monotonic() + longest_s
        while self._world.clock.monotonic() < until and not interrupted() and not self._has_arrived(positions):
            self._world.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _has_arrived(self, positions: Positions) -> bool:
        logs = self._world.broker.logs
        return any(logs[topic, p].stable > at.offset for topic, own in positions.items() for p, at in own.items())
