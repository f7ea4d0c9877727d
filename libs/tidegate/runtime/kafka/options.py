"""Translates options of the Java client to arguments for kafka-python.

A configuration that works for Java tools can be pasted. An option without a counterpart here is refused, never ignored.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.contracts.naming import servers_problem

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
KNOWN = (
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_JAAS = re.compile(r"\s*(?P<module>[\w.]+)\s+required\b(?P<options>.*);\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def kafka_python_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the keyword arguments for kafka-python. Raise ConfigurationError that lists every problem at once."""
    given = {name: str(value) for name, value in options.items()}
    reader = _Reader(given)
    result = reader.general() | reader.sasl() | reader.tls()
    if reader.problems:
        raise ConfigurationError(reader.problems)
    return result


class _Reader:
    """Reads the options group by group and collects their problems."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.problems: list[Problem] = []
        for name in sorted(set(given) - set(KNOWN)):  # its value may be a secret under a misspelt name
            remedy = f"remove it; known are: {', '.join(KNOWN)}"
            self._refuse(name, "not an option that Tidegate knows", remedy, secret=True)

    def general(self) -> dict[str, Any]:
        """Return servers, protocol, client id and timeout."""
        named = self._given.get("bootstrap.servers", "")
        if (problem := servers_problem(named)) is not None:
            self._refuse("bootstrap.servers", problem.cause, problem.remedy)
        servers = [server.strip() for server in named.split(",") if server.strip()]
        result: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": self._protocol()}
        if "client.id" in self._given:
            result["client_id"] = self._given["client.id"]
        if "request.timeout.ms" in self._given:
            result["request_timeout_ms"] = self._milliseconds("request.timeout.ms")
        return result

    def sasl(self) -> dict[str, Any]:
        """Return mechanism and credentials if the protocol uses SASL."""
        if not self._protocol().startswith("SASL_"):
            return {}
        mechanism = self._given.get("sasl.mechanism", "")
        if mechanism not in LOGIN_MODULES:
            self._refuse("sasl.mechanism", "not a mechanism that Tidegate has", f"write {_one_of(LOGIN_MODULES)}")
            return {}
        user, password = self._credentials(LOGIN_MODULES[mechanism])
        return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}

    def tls(self) -> dict[str, Any]:
        """Return a TLS context if the protocol uses TLS."""
        if not self._protocol().endswith("SSL"):
            return {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self._given.get("ssl.endpoint.identification.algorithm", "https") != ""
        self._trust(context)
        self._identify(context)
        return {"ssl_context": context}

    def _protocol(self) -> str:
        protocol = self._given.get("security.protocol", "PLAINTEXT").upper()
        if protocol in PROTOCOLS:
            return protocol
        self._refuse("security.protocol", "not a protocol of Kafka", f"write {_one_of(PROTOCOLS)}")
        return "PLAINTEXT"

    def _milliseconds(self, name: str) -> int:
        if self._given[name].isdecimal() and int(self._given[name]) > 0:
            return int(self._given[name])
        self._refuse(name, "not a number of milliseconds", "write a whole number above 0, such as 30000")
        return 0

    def _credentials(self, module: str) -> tuple[str, str]:
        found = _JAAS.fullmatch(self._given.get("sasl.jaas.config", ""))
        options = dict(_JAAS_OPTION.findall(found["options"])) if found else {}
        if not found or found["module"] != module or not {"username", "password"} <= options.keys():
            remedy = f'write {module} required username="..." password="...";'
            self._refuse("sasl.jaas.config", "not a login of this mechanism", remedy, secret=True)
            return "", ""
        return _unescaped(options["username"]), _unescaped(options["password"])

    def _trust(self, context: ssl.SSLContext) -> None:
        self._require_pem("ssl.truststore")
        certificates = self._given.get("ssl.truststore.certificates")
        location = self._given.get("ssl.truststore.location")
        if certificates is None and location is None:
            context.load_default_certs()
            return
        try:
            context.load_verify_locations(cafile=location, cadata=certificates)
        except (OSError, ValueError) as cause:
            name = "ssl.truststore.certificates" if location is None else "ssl.truststore.location"
            self._refuse(name, f"cannot be read as PEM certificates ({cause})", "give the authority's PEM certificates")

    def _identify(self, context: ssl.SSLContext) -> None:
        self._require_pem("ssl.keystore")
        location = self._given.get("ssl.keystore.location")
        if location is None:
            return
        try:
            context.load_cert_chain(location, password=self._given.get("ssl.key.password", ""))
        except (OSError, ValueError) as cause:
            remedy = "name a PEM file that holds the certificate and its private key"
            self._refuse("ssl.keystore.location", f"cannot be read as certificate and key ({cause})", remedy)

    def _require_pem(self, store: str) -> None:
        if f"{store}.location" in self._given and self._given.get(f"{store}.type", "JKS").upper() != "PEM":
            self._refuse(
                f"{store}.type",
                "not PEM, the only kind of store that is read here",
                f"write {store}.type: PEM and name a PEM file (keytool and openssl convert the others)",
            )

    def _refuse(self, name: str, cause: str, remedy: str, *, secret: bool = False) -> None:
        value = "(hidden)" if secret or "password" in name else self._given.get(name)
        problem = Problem(where=f"kafka.{name}", value=value, cause=cause, remedy=remedy)
        if problem not in self.problems:
            self.problems.append(problem)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _one_of(names: Iterable[str]) -> str:
    return " or ".join(names)
