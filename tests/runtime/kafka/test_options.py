"""A configuration that works for Java tools can be pasted; all its problems are reported at once."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tidegate.contracts.errors import ConfigurationError
from tidegate.runtime.kafka.options import kafka_python_options

pytestmark = pytest.mark.fast

SERVERS = {"bootstrap.servers": "a:1, b:2"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="s=1;";'


def problems(options: dict[str, str]) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as refused:
        kafka_python_options(options)
    return {problem.where: str(problem) for problem in refused.value.problems}


def test_servers_client_id_and_timeout_are_passed_to_the_client() -> None:
    assert kafka_python_options(SERVERS | {"client.id": "me", "request.timeout.ms": "5000"}) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
        "client_id": "me",
        "request_timeout_ms": 5000,
    }


def test_a_jaas_login_gives_user_and_password() -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    taken = kafka_python_options(SERVERS | options)
    assert (taken["sasl_mechanism"], taken["sasl_plain_username"], taken["sasl_plain_password"]) == (
        "PLAIN",
        'al"ice',
        "s=1;",
    )


def test_the_login_module_must_be_that_of_the_mechanism_and_the_login_stays_secret() -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": PLAIN}
    [text] = problems(SERVERS | options).values()
    assert "ScramLoginModule required" in text
    assert "ice" not in text


def test_tls_checks_names_and_certificates_unless_names_are_switched_off() -> None:
    context = kafka_python_options(SERVERS | {"security.protocol": "SSL"})["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    options = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    context = kafka_python_options(SERVERS | options)["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    garbage = tmp_path / "store.pem"
    garbage.write_text("no certificate")
    found = problems(
        {
            "acks": "all",
            "request.timeout.ms": "soon",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "ssl.truststore.location": str(garbage),
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "keys.jks",
        }
    )
    assert found.keys() == {
        "kafka.acks",
        "kafka.bootstrap.servers",
        "kafka.request.timeout.ms",
        "kafka.sasl.mechanism",
        "kafka.ssl.truststore.location",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.type",
    }


def test_an_unknown_protocol_is_refused() -> None:
    assert "SASL_SSL" in problems(SERVERS | {"security.protocol": "TLS"})["kafka.security.protocol"]
