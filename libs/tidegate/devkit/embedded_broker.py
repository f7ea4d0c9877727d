"""A real, single Kafka broker in KRaft mode, which Tidegate starts and stops.

A data folder belongs to one broker. It holds `server.properties`, `broker.log`, `topics/` (Kafka's own folder) and,
after a start, `broker.json` with the process id and the port. Kafka's own lock on its folder shows whether a broker
runs, so a process id that the system has since given to another program misleads nobody.

`KAFKA_OPTS`, as for Kafka's own scripts, holds further options for its JVM.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import setup_remedy

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
_LAUNCHES = 3
_LOG_LINES_SHOWN = 15
# Below the ephemeral range: no outgoing connection takes one of these ports before the broker binds it.
_FREE_PORTS = range(20_000, 30_000)
_TOOL_FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# As in Kafka's own scripts: without the limit, pauses of a collection are up to 90 ms.
_COLLECTOR = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
_BROKER_FLAGS = ["-Xms512m", "-Xmx1g", *_COLLECTOR, "-Djava.awt.headless=true", "-Dlog4j2.level=WARN"]
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners={listeners},CONTROLLER://{host}:{controller_port}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
log.dirs={topics}
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=16777216
"""
_SECURED = ("SSL", "SASL_SSL")
_MECHANISMS = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
_SECURITY_SETTINGS = """\
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms={mechanisms}
{logins}
"""


@dataclass(frozen=True, kw_only=True)
class Security:
    """Access to a broker over TLS: by client certificate (SSL) or by password (SASL_SSL).

    `keystore`: PEM file with the broker's private key and certificates. `truststore`: PEM file with the authorities
    whose client certificates are accepted. `users`: user to password, for PLAIN and SCRAM; letters, digits and dashes
    only. The users of SCRAM are those with which the data folder was formatted.
    """

    keystore: Path
    truststore: Path
    users: Mapping[str, str]


@dataclass(kw_only=True)
class Broker:
    """A running broker, reachable at `bootstrap`. As a context manager, it is stopped at the end."""

    data: Path
    port: int
    pid: int
    secured: Mapping[str, str] = field(default_factory=dict)
    """The addresses by protocol, SSL and SASL_SSL; empty without TLS."""
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @classmethod
    def start(
        cls,
        data: Path,
        jars: Path,
        *,
        port: int | None = None,
        security: Security | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Broker:
        """Start a broker on this data folder and wait until it answers.

        `port`: default, a free one. `security`: it listens over TLS, too. `settings`: further settings of the broker,
        by Kafka's names, which override Tidegate's own.

        The folder is formatted once and keeps its topics from start to start. The broker is a process of its own, which
        outlives the caller unless it is stopped. Raises UserError if Java or the jars are missing, or if the folder or
        the port is in use; EngineError if the broker died or did not answer in time. If another program takes a port
        that was free, before the broker does, the broker is started again on other ports.
        """
        java = java_command()
        _require_jars(jars)
        data = data.resolve()
        data.mkdir(parents=True, exist_ok=True)
        _require_unused(data)
        for _ in range(_LAUNCHES):
            ports = _Ports.free(port, security)
            _write_settings(data, ports, security, settings or {})
            _format_once(java, jars, data, security)
            child = _launch(java, jars, data)
            (data / "broker.json").write_text(
                json.dumps({"pid": child.pid, "port": ports.plain, "secured": ports.secured})
            )
            broker = cls(data=data, pid=child.pid, port=ports.plain, secured=ports.secured, _child=child)
            if broker._answers_before_it_ends(child):
                return broker
            if not _has_lost_a_port(data):
                break
        raise _failure(f"the broker ended during its start (exit code {child.returncode})", data)

    @classmethod
    def running(cls, data: Path) -> Broker | None:
        """Return the broker that runs on this data folder, whichever process started it; None if none runs."""
        if not _is_locked(data):
            return None
        saved = json.loads((data / "broker.json").read_text())
        return cls(data=data.resolve(), **saved)

    @property
    def bootstrap(self) -> str:
        """Return the address for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def stop(self) -> None:
        """Stop the broker: ask it to shut down, and kill it after half a minute. Its data stay."""
        _signal(self.pid, signal.SIGTERM)
        if not self._has_ended_within(STOP_TIMEOUT_S):
            _signal(self.pid, signal.SIGKILL)
            self._has_ended_within(STOP_TIMEOUT_S)
        (self.data / "broker.json").unlink(missing_ok=True)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _has_ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._child.poll() is not None if self._child else not _is_locked(self.data):
                return True
            time.sleep(0.05)
        return False

    def _answers_before_it_ends(self, child: subprocess.Popen[bytes]) -> bool:
        deadline, cluster = time.monotonic() + START_TIMEOUT_S, _cluster(self.data)
        while child.poll() is None:
            if _answers(self.bootstrap, cluster):
                return True
            if time.monotonic() > deadline:
                self.stop()
                raise _failure(f"the broker did not answer within {START_TIMEOUT_S:.0f} s", self.data)
            time.sleep(0.05)
        return False


@dataclass(frozen=True)
class _Ports:
    """The ports of a broker, free when they were chosen."""

    plain: int
    controller: int
    secured: Mapping[str, str]
    """The addresses by protocol."""

    @classmethod
    def free(cls, plain: int | None, security: Security | None) -> _Ports:
        """Choose free ports; `plain`, if given, is the port of clients without TLS, and has to be free."""
        plain = free_ports(1)[0] if plain is None else _require_free(plain)
        protocols = _SECURED if security else ()
        controller, *others = free_ports(1 + len(protocols), other_than=plain)
        secured = {protocol: f"{HOST}:{other}" for protocol, other in zip(protocols, others, strict=True)}
        return cls(plain, controller, secured)


def _require_jars(jars: Path) -> None:
    if not any(jars.glob("kafka_*.jar")):
        raise UserError("the jars of the Kafka broker are missing", value=jars, remedy=setup_remedy())


def _require_unused(data: Path) -> None:
    if _is_locked(data):
        raise UserError(
            "a broker already runs on this data folder",
            value=data,
            remedy=f"use it, stop it (`tidegate kafka stop --data {data}`), or choose another folder",
        )


def _require_free(port: int) -> int:
    if not _is_free(port):
        raise UserError(
            "another program uses the broker's port",
            value=f"{HOST}:{port}",
            remedy="stop that program, or choose another port with --port",
        )
    return port


def free_ports(count: int, other_than: int | None = None) -> list[int]:
    """Return free ports of this machine, which no outgoing connection takes by chance."""
    candidates = random.SystemRandom().sample(_FREE_PORTS, len(_FREE_PORTS))  # no seed: processes choose differently
    return list(islice((port for port in candidates if port != other_than and _is_free(port)), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT counts as free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _is_locked(data: Path) -> bool:
    """Return True while a broker holds Kafka's lock on its folder."""
    try:
        with (data / "topics" / ".lock").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _write_settings(data: Path, ports: _Ports, security: Security | None, others: Mapping[str, str]) -> None:
    addresses = {"PLAINTEXT": f"{HOST}:{ports.plain}", **ports.secured}
    settings = _SETTINGS.format(
        host=HOST,
        listeners=",".join(f"{protocol}://{address}" for protocol, address in addresses.items()),
        controller_port=ports.controller,
        topics=data / "topics",
    )
    if security is not None:
        settings += _SECURITY_SETTINGS.format(
            keystore=security.keystore.resolve(),
            truststore=security.truststore.resolve(),
            mechanisms=",".join(_MECHANISMS),
            logins="\n".join(_login(mechanism, security.users) for mechanism in _MECHANISMS),
        )
    settings += "".join(f"{name}={value}\n" for name, value in others.items())
    (data / "server.properties").write_text(settings)


def _login(mechanism: str, users: Mapping[str, str]) -> str:
    """Return the login setting of a mechanism: PLAIN's holds the users, SCRAM's are in the cluster metadata."""
    known = "".join(f' user_{user}="{password}"' for user, password in users.items()) if mechanism == "PLAIN" else ""
    module = f"org.apache.kafka.common.security.{_MECHANISMS[mechanism]}LoginModule"
    return f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config={module} required{known};"


def _format_once(java: str, jars: Path, data: Path, security: Security | None) -> None:
    if (data / "topics" / "meta.properties").exists():
        return
    tool = ["kafka.tools.StorageTool", "format", "--cluster-id", _cluster_id(), "--config", "server.properties"]
    scram = _scram_users(security.users) if security else []
    with (data / "broker.log").open("wb") as log:
        done = subprocess.run(
            _command(java, _TOOL_FLAGS, jars, *tool, *scram),
            cwd=data,
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode != 0:
        raise _failure("the broker's data folder could not be formatted", data)


def _scram_users(users: Mapping[str, str]) -> list[str]:
    return [
        argument
        for user, password in users.items()
        for mechanism in _MECHANISMS
        if mechanism.startswith("SCRAM")
        for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]


def _cluster_id() -> str:
    return "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]  # a leading '-' would be read as an option


def _launch(java: str, jars: Path, data: Path) -> subprocess.Popen[bytes]:
    with (data / "broker.log").open("wb") as log:
        return subprocess.Popen(
            _command(java, _BROKER_FLAGS, jars, "kafka.Kafka", "server.properties"),
            cwd=data,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in a terminal is for the caller alone, who stops its broker last
        )


def _command(java: str, flags: list[str], jars: Path, *program: str) -> list[str]:
    further = shlex.split(os.environ.get("KAFKA_OPTS", ""))
    return [java, *flags, *further, "-cp", f"{jars.resolve()}/*", *program]


def _cluster(data: Path) -> str:
    """Return the id of the cluster for which the data folder was formatted."""
    written = (data / "topics" / "meta.properties").read_text()
    return written.partition("cluster.id=")[2].partition("\n")[0]


def _answers(bootstrap: str, cluster: str) -> bool:
    """Return True once a broker of this cluster accepts connections there and is in the cluster's metadata."""
    host, port = bootstrap.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        told = _described(bootstrap)
    except (OSError, KafkaError):
        return False
    return told["cluster_id"] == cluster and len(told["brokers"]) > 0


def _described(bootstrap: str) -> dict[str, Any]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000)
    try:
        return dict(admin.describe_cluster())
    finally:
        admin.close()


def _has_lost_a_port(data: Path) -> bool:
    """Return True if the broker ended because another program had taken one of its ports."""
    return "Address already in use" in (data / "broker.log").read_text(errors="replace")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _failure(problem: str, data: Path) -> EngineError:
    log = data / "broker.log"
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
    return EngineError(
        problem,
        value="\n".join([str(log), *(f"    {line}" for line in lines)]),
        remedy="the lines above are the end of the broker's log; delete the folder if it is damaged",
    )
