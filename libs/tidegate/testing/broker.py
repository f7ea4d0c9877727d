"""A Kafka broker for tests and trials of your own, from the jars of `tidegate setup`."""

from __future__ import annotations

from pathlib import Path

from tidegate.devkit.embedded_broker import Broker, Security
from tidegate.runtime.install.paths import jars

__all__ = ["Broker", "Security", "start_broker"]


def start_broker(data: str | Path, *, port: int | None = None, security: Security | None = None) -> Broker:
    """Start a broker on this data folder and wait until it answers; as a context manager, it is stopped at the end.

    `port`: default, a free one. `security`: it listens over TLS, too.

    Raises UserError if Java or the jars are missing, or if the folder or the port is in use; EngineError if the broker
    died or did not answer in time.
    """
    return Broker.start(Path(data), jars("broker"), port=port, security=security)
