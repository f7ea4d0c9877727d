"""Which login errors are definite, and which may be temporary."""

from __future__ import annotations

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from tidegate.runtime.kafka.login_errors import login_error

pytestmark = pytest.mark.fast

VERIFY = "Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("cause", "problem", "remedy"),
    [
        (SaslAuthenticationFailedError("Authentication failed"), "refuses the login", "sasl.jaas.config"),
        (UnsupportedSaslMechanismError("Enabled: PLAIN"), "sasl.mechanism", "sasl.mechanism"),
        (KafkaConnectionError(VERIFY + "unable to get local issuer certificate"), "does not trust", "truststore"),
        (KafkaConnectionError(VERIFY + "self-signed certificate"), "does not trust", "truststore"),
        (KafkaConnectionError(VERIFY + "Hostname mismatch, certificate is not valid"), "another host", "servers"),
        (KafkaConnectionError(VERIFY + "IP address mismatch"), "another host", "bootstrap.servers"),
        (KafkaConnectionError(VERIFY + "certificate has expired"), "not valid today", "renew"),
        (KafkaConnectionError("[SSL: X] sslv3 alert bad certificate"), "this client's certificate", "keystore"),
        (KafkaConnectionError("[SSL: X] tlsv1 alert unknown ca"), "this client's certificate", "keystore"),
        (KafkaConnectionError("[SSL: X] tlsv13 alert certificate required"), "this client's certificate", "keystore"),
        (KafkaConnectionError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "speak TLS", "security.protocol"),
    ],
)
def test_a_permanent_refusal_is_a_user_error(cause, problem, remedy):
    error = login_error(cause, "a:1")
    assert error is not None
    assert problem in error.problem
    assert remedy in error.remedy
    assert "a:1" in str(error)


@pytest.mark.parametrize("cause", ["socket disconnected", "111 ECONNREFUSED", "timed out"])
def test_an_unavailable_broker_or_a_closed_connection_is_not_a_login_error(cause):
    assert login_error(KafkaConnectionError(cause), "a:1") is None
