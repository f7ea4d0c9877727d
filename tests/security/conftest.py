"""A broker that accepts TLS clients only with a certificate or a login, and valid client options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.security.certificates import authority, signed
from tidegate.devkit.embedded_broker import HOST, Broker, Security
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.options import LOGIN_MODULES

USER, PASSWORD = "alice", "alice-secret"


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A broker with its authority, and a client certificate of that authority and one of another."""

    broker: Broker
    authority: Path
    certificate: Path
    stranger: Path
    strangers_authority: Path

    def by_certificate(self, **changed: str) -> dict[str, str]:
        """Options for TLS with a client certificate."""
        return {
            "security.protocol": "SSL",
            "bootstrap.servers": self.broker.secured["SSL"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            **{name.replace("_", "."): value for name, value in changed.items()},
        }

    def by_login(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, str]:
        """Options for TLS with a user and a password."""
        return {
            "security.protocol": "SASL_SSL",
            "bootstrap.servers": self.broker.secured["SASL_SSL"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";',
        }


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One such broker for all tests."""
    folder = tmp_path_factory.mktemp("guarded")
    ours, theirs = authority(folder, "ours"), authority(folder, "theirs")
    security = Security(
        keystore=signed(ours, "broker", f"IP:{HOST}"), truststore=ours, users={USER: PASSWORD, "bob": "bob-secret"}
    )
    with Broker.start(folder / "broker", paths.jars("broker"), security=security) as broker:
        yield Guarded(
            broker=broker,
            authority=ours,
            certificate=signed(ours, "client", "DNS:client"),
            stranger=signed(theirs, "client", "DNS:client"),
            strangers_authority=theirs,
        )
