"""Sends requests to Kafka and finds the brokers to send them to. The only module that imports kafka.net.

kafka-python handles connections, TLS, SASL and encoding. It has no thread of its own here: the calling thread drives
its event loop while it waits. There is one client per thread, created after the fork. A request that gets no response
in time closes all connections, because the broker may still carry it out: the caller decides what to do next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import (
    AuthorizationError,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import EngineError, TidegateError, Unavailable, UserError
from tidegate.runtime.kafka.decoder_lock import serialise_compilation
from tidegate.runtime.kafka.login_errors import login_error
from tidegate.runtime.kafka.options import kafka_python_options
from tidegate.runtime.kafka.receiving import copy_once, receive
from tidegate.runtime.kafka.request_retries import (
    Deadline,
    error_for,
    is_retriable,
    timed_out,
)

serialise_compilation()
copy_once()

GROUP, TRANSACTION = 0, 1
"""Coordinator types of FindCoordinator: of a consumer group, of a transactional id."""

DEFAULT_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 5.0
"""Timeout of a check whether a broker answers; a driver handles a signal after this at the latest."""
INTERRUPTED_EVERY_S = 0.25
_MARGIN_S = 10.0
"""How much longer than its wait a long poll may take before its connection counts as broken."""
_LARGEST_ANSWER_BYTES = 2**31 - 1
_UNLIMITED = 2**31
_RECONNECT_PAUSE_S = 0.02
_LONGEST_BOOTSTRAP_S = 5.0
"""Timeout of one bootstrap attempt: kafka-python uses all of it on one server, chosen at random for each attempt."""
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
NO_LEADER = -1

_clients: dict[tuple[int, int, frozenset[tuple[str, str]]], KafkaClient] = {}


def client(options: Mapping[str, str]) -> KafkaClient:
    """Return this thread's client for these options (the Java client's names). It connects with its first request."""
    # rule: client-per-process
    key = (os.getpid(), threading.get_ident(), frozenset((name, str(value)) for name, value in options.items()))
    if key not in _clients:
        _clients[key] = KafkaClient(options)
    return _clients[key]


@dataclass(frozen=True, kw_only=True)
class TopicMetadata:
    """A topic as described by the cluster's metadata. `id` changes when the topic is deleted and created again."""

    name: str
    id: str
    leaders: dict[int, int]


class NoSuchTopic(UserError):
    """The cluster has no topic with this name."""

    @classmethod
    def named(cls, name: str, partitions: int | None = None) -> NoSuchTopic:
        """Return the error for the topic of this name. `partitions`: how many it is to have; None: any number."""
        wanted = "" if partitions is None else f" --partitions {partitions}"
        return cls(f"topic {name} does not exist", remedy=f"tidegate topics create {name}{wanted}")


class KafkaClient:
    """Sends requests, and caches partition leaders and coordinators.

    Threads may share it; one call of `send` or `send_all` runs at a time. `clock` measures the deadlines of requests.
    """

    clock: Clock = SYSTEM_CLOCK

    def __init__(self, options: Mapping[str, str]) -> None:
        self._settings = kafka_python_options(options)
        self._timeout_s = self._settings.get("request_timeout_ms", DEFAULT_TIMEOUT_S * 1_000) / 1_000
        self._lock = threading.RLock()
        self._network: _Network | None = None
        self._topics: dict[str, TopicMetadata] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def send(self, request: Any, node_id: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send the request to the given broker, or to any, and return the response.

        Raises EngineError and closes every connection if there is no response in time; UserError if authentication
        fails.
        """
        [answer] = self.send_all([(request, node_id)], timeout_s=timeout_s)
        if isinstance(answer, TidegateError):
            raise answer
        return answer

    def probe(self, timeout_s: float | None = None) -> None:
        """Check that a broker responds. Raise Unavailable if none does in time, UserError if authentication fails."""
        self.send(_api_versions(), timeout_s=timeout_s)

    def send_all(self, requests: Sequence[tuple[Any, int | None]], *, timeout_s: float | None = None) -> list[Any]:
        """Send all requests at once and return the responses in order; a request that failed has its error instead.

        Closes every connection if a request failed.
        """
        # rule: one-request-at-a-time
        with self._lock:
            deadline = Deadline(self._timeout_s if timeout_s is None else timeout_s, self.clock)
            answers = self._connected(deadline).send_all(requests, deadline)
            if any(isinstance(answer, TidegateError) for answer in answers):
                # rule: close-after-timeout
                self.close()
            return answers

    def first_answers(
        self, requests: Mapping[int, Any], deadline: Deadline, interrupted: Callable[[], bool]
    ) -> list[Any]:
        """Send each broker its request, wait until one answers, and return the answers, errors among them.

        Return none when the deadline has passed or once `interrupted()`, which is called every INTERRUPTED_EVERY_S. An
        answer that is still due counts for a later call, which sends that broker no other request. Raise Unavailable
        or UserError if there is no connection.
        """
        with self._lock:
            return self._connected(deadline).first_answers(requests, deadline, interrupted)

    def topic(self, name: str) -> TopicMetadata:
        """Fetch the topic's metadata and return it. Raise NoSuchTopic if the topic does not exist."""
        found = self.existing_topics([name])
        if name not in found:
            raise NoSuchTopic.named(name)
        return found[name]

    def existing_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Fetch the metadata of the topics in one request; return those that exist, by name.

        A partition that has no leader at the moment has -1 in `leaders`.
        """
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in dict.fromkeys(names)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            min_version=10,
            max_version=12,
        )
        answers = self.send(request).topics
        found = {topic.name: topic for topic in map(_metadata, answers) if topic is not None}
        self._topics |= found
        return found

    def leader(self, topic: str, partition: int, deadline: Deadline) -> int:
        """Return the partition's leader, from the cache if it is there. Raise UserError if there is no such partition.

        Raises Unavailable if the partition has no leader until the deadline.
        """
        for _attempt in deadline.attempts():
            known = self._topics.get(topic) or self.topic(topic)
            if partition not in known.leaders:
                known = self.topic(topic)  # it may have grown
            if partition not in known.leaders:
                raise UserError(f"topic {topic} has no partition {partition}", value=f"{len(known.leaders)} partitions")
            if known.leaders[partition] != NO_LEADER:
                return known.leaders[partition]
            self.forget_leaders(topic)
        raise Unavailable(f"partition {partition} of topic {topic} has no leader", remedy="check the brokers")

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leaders of the topic's partitions, from the cache if they are there."""
        return (self._topics.get(topic) or self.topic(topic)).leaders

    def forget_leaders(self, topic: str) -> None:
        """Drop the topic from the cache, so that the next `leader` fetches fresh metadata."""
        self._topics.pop(topic, None)

    def coordinator(self, kind: int, key: str, deadline: Deadline) -> int:
        """Return the coordinator of the group or transactional id, from the cache if it is there."""
        node = self._coordinators.get((kind, key))
        if node is None:
            node = self._coordinators[kind, key] = self._find_coordinator(kind, key, deadline)
        return node

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Drop the key's coordinator from the cache, so that the next `coordinator` asks the cluster."""
        self._coordinators.pop((kind, key), None)

    def transaction_version(self) -> int:
        """Return 2 if the cluster has finalised KIP-890's transactions (transaction.version 2), else 1."""
        answer = self.send(_api_versions())
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features or []}
        # rule: transaction-version/feature
        return 2 if levels.get("transaction.version", 0) >= 2 else 1

    def max_message_bytes(self, topic: str) -> int:
        """Return the size in bytes of the largest record batch that the topic accepts (max.message.bytes)."""
        return int(self._topic_setting(topic, "max.message.bytes"))

    def is_compacted(self, topic: str) -> bool:
        """Return True if the topic's cleanup.policy includes `compact`."""
        return "compact" in self._topic_setting(topic, "cleanup.policy")

    def offset_retention_s(self, group: str) -> float | None:
        """Return offsets.retention.minutes of the group's coordinator, in seconds.

        None if this client is not authorized to read the broker's configuration.
        """
        node = self.coordinator(GROUP, group, Deadline(self._timeout_s, self.clock))
        result = self._setting(_BROKER_RESOURCE, str(node), "offsets.retention.minutes", node)
        if result.error_code and issubclass(for_code(result.error_code), AuthorizationError):
            return None
        if result.error_code:
            raise error_for(result.error_code, f"configuration of broker {node}")
        return 60.0 * int(result.configs[0].value)

    def _topic_setting(self, topic: str, name: str) -> str:
        result = self._setting(_TOPIC_RESOURCE, topic, name)
        if result.error_code == UnknownTopicOrPartitionError.errno:
            raise UserError(f"topic {topic} does not exist", remedy=f"tidegate topics create {topic}")
        if result.error_code:
            raise error_for(result.error_code, f"configuration of topic {topic}")
        return str(result.configs[0].value)

    def _setting(self, kind: int, owner: str, name: str, node: int | None = None) -> Any:
        """Return the broker's response about one setting, error code included."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=owner, configuration_keys=[name]
        )
        [result] = self.send(DescribeConfigsRequest(resources=[resource], max_version=4), node).results
        return result

    def close(self) -> None:
        """Close all connections and clear the caches; the next request connects again."""
        with self._lock:
            network, self._network = self._network, None
            self._topics.clear()
            self._coordinators.clear()
        if network is not None:
            network.close()

    def _connected(self, deadline: Deadline) -> _Network:
        if self._network is None:
            network = _Network(self._settings)
            network.connect(deadline)
            self._network = network
        return self._network

    def _find_coordinator(self, kind: int, key: str, deadline: Deadline) -> int:
        code, what = 0, f"find the coordinator of {key}"
        for _attempt in deadline.attempts():
            answer = self.send(FindCoordinatorRequest(key=key, key_type=kind, min_version=1, max_version=3))
            code = answer.error_code
            if not code:
                return int(answer.node_id)
            if not is_retriable(code):
                raise error_for(code, what)
        raise timed_out(code, what)


def _metadata(found: Any) -> TopicMetadata | None:
    """Return the topic as a metadata response describes it; None if it does not exist."""
    if found.error_code == UnknownTopicOrPartitionError.errno:
        return None
    if found.error_code and not is_retriable(found.error_code):
        raise error_for(found.error_code, f"metadata of topic {found.name}")
    leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
    return TopicMetadata(name=found.name, id=str(found.topic_id), leaders=dict(sorted(leaders.items())))


def _api_versions() -> Any:
    return ApiVersionsRequest(client_software_name="tidegate", client_software_version="1")


def _result(task: Any) -> Any:
    """Return what the task of the event loop has returned. Raise what it has raised."""
    if task.exception is not None:
        raise task.exception
    return task.result


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connections, which receive by `receiving.receive`."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = lambda: receive(transport._sock)
        return transport


class _Network:
    """kafka-python's connections and event loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._servers = ", ".join(settings["bootstrap_servers"])
        self._due: dict[int, Any] = {}
        self._loop = NetworkSelector(slow_task_threshold_secs=0)
        self._manager = _Connections(
            self._loop,
            receive_message_max_bytes=_LARGEST_ANSWER_BYTES,
            max_in_flight_requests_per_connection=_UNLIMITED,
            **settings,
        )

    def connect(self, deadline: Deadline) -> None:
        """Connect to a broker and load the list of the cluster's brokers.

        Raises UserError if authentication fails, Unavailable if no broker responds before the deadline.
        """
        cause = self._loop.run(self._first_failure, deadline)
        while cause is None or not login_error(cause, self._servers):
            try:
                self._manager.bootstrap(timeout_ms=min(deadline.remaining_s, _LONGEST_BOOTSTRAP_S) * 1_000)
                return
            except KafkaError as failure:
                cause = cause or failure
            if not deadline.remaining_s:
                break
        self.close()
        raise self._unreachable(cause) from cause

    def send_all(self, requests: Sequence[tuple[Any, int | None]], deadline: Deadline) -> list[Any]:
        """Send all requests at once; return responses and errors in order."""
        self._loop.poll(timeout_ms=0)  # notices connections that brokers have closed since the last request
        # the loop's `run` would wake itself for each request, as if another thread drove it, which takes longer
        tasks = [self._loop.call_soon(self._answer(request, node, deadline)) for request, node in requests]
        while not all(task.is_done for task in tasks):
            self._loop.poll()
        return [_result(task) for task in tasks]

    def first_answers(
        self, requests: Mapping[int, Any], deadline: Deadline, interrupted: Callable[[], bool]
    ) -> list[Any]:
        """Send the requests to brokers that owe no answer; return those of the first brokers that answer in time."""
        until = Deadline(deadline.remaining_s + _MARGIN_S, deadline.clock)
        for node, request in requests.items():
            if node not in self._due:
                self._due[node] = self._manager.call_soon(self._answer, request, node, until)
        while deadline.remaining_s and not interrupted():
            self._loop.poll(timeout_ms=min(deadline.remaining_s, INTERRUPTED_EVERY_S) * 1_000)
            if answered := [node for node, answer in self._due.items() if answer.is_done]:
                return [self._due.pop(node).value for node in answered]
        return []

    def close(self) -> None:
        """Close all connections and the event loop."""
        self._manager.close()
        self._loop.close()

    async def _first_failure(self, deadline: Deadline) -> KafkaError | None:
        """Return why no bootstrap server can be used; None if one can. kafka-python's bootstrap does not report it."""
        servers = self._manager.cluster.bootstrap_brokers()
        failure = None
        for server in servers:
            share_ms = deadline.remaining_s * 1_000 / (len(servers) + 1)
            try:
                await self._manager.get_connection(server.node_id, timeout_ms=share_ms, refresh_metadata_on_err=False)
                return None
            except KafkaError as cause:
                failure = cause
        return failure

    async def _answer(self, request: Any, node_id: int | None, deadline: Deadline) -> Any:
        """Return the response or the error. Retry until the request is sent; never send it twice."""
        try:
            connection = await self._connection(node_id, deadline)
        except KafkaError as cause:
            return self._unreachable(cause)
        try:
            return await connection.send_request(request, request_timeout_ms=deadline.remaining_s * 1_000)
        except IncompatibleBrokerVersion as cause:
            return EngineError(f"the broker does not know {request.name}", value=str(cause), remedy="update the broker")
        except KafkaError as cause:
            # rule: no-resend
            return Unavailable(
                f"no answer to {request.name}; it may have been carried out nevertheless",
                value=f"{self._servers}: {cause}",
                remedy="check the brokers; Tidegate continues when they answer",
            )

    async def _connection(self, node_id: int | None, deadline: Deadline) -> Any:
        """Return a connection that accepts requests now; retry until the deadline, unless authentication fails."""
        while True:
            try:
                node = self._manager.least_loaded_node() if node_id is None else node_id
                connection = await self._manager.get_connection(node, timeout_ms=deadline.remaining_s * 1_000)
                if not connection.paused:
                    return connection
                if not deadline.remaining_s:
                    raise NodeNotReadyError(f"node {node} is throttled")
            except UnknownBrokerIdError:
                self._manager.cluster.request_update()
                if not deadline.remaining_s:
                    raise
            except KafkaError as cause:
                if login_error(cause, self._servers) or not deadline.remaining_s:
                    raise
            await self._loop.sleep(_RECONNECT_PAUSE_S)

    def _unreachable(self, cause: KafkaError) -> TidegateError:
        return login_error(cause, self._servers) or Unavailable(
            f"no Kafka broker answers at {self._servers}",
            value=str(cause),
            remedy="start it (`tidegate kafka start`), or correct bootstrap.servers and security.protocol",
        )
