"""Explains authentication and TLS errors in plain words. Pure."""

from __future__ import annotations

from kafka.errors import AuthorizationError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from tidegate.contracts.errors import UserError

_REFUSED_LOGIN = (SaslAuthenticationFailedError, AuthorizationError)
_TLS = (
    (
        ("hostname mismatch", "ip address mismatch"),
        "the broker's certificate is for another host name",
        "name the broker in bootstrap.servers (and in its advertised.listeners) as its certificate does",
    ),
    (
        ("certificate has expired", "certificate is not yet valid"),
        "the broker's certificate is not valid today",
        "renew the broker's certificate, or correct this machine's clock",
    ),
    (
        ("certificate_verify_failed",),
        "the broker's certificate is signed by an authority that this machine does not trust",
        "name the authority's PEM file in ssl.truststore.location, with ssl.truststore.type: PEM",
    ),
    (
        ("alert bad certificate", "alert certificate", "alert unknown ca", "alert handshake failure"),
        "the broker does not accept this client's certificate",
        "name a PEM file with certificate and key that the broker trusts in ssl.keystore.location",
    ),
    (
        ("wrong version number", "record layer failure"),
        "the broker does not speak TLS at this address",
        "use the port of its TLS listener, or another security.protocol",
    ),
)


def login_error(cause: BaseException, servers: str) -> UserError | None:
    """Return the UserError for a login or certificate that a retry cannot fix; None for any other error."""
    if isinstance(cause, UnsupportedSaslMechanismError):
        remedy = "write a mechanism that the broker supports in sasl.mechanism"
        return UserError("the broker does not support this sasl.mechanism", value=f"{servers}: {cause}", remedy=remedy)
    if isinstance(cause, _REFUSED_LOGIN):
        remedy = (
            "correct user and password in sasl.jaas.config; check that the broker has the user for this sasl.mechanism"
        )
        return UserError("Kafka refuses the login", value=f"{servers}: {cause}", remedy=remedy)
    text = str(cause).lower()
    for signs, problem, remedy in _TLS:
        if any(sign in text for sign in signs):
            return UserError(problem, value=f"{servers}: {cause}", remedy=remedy)
    return None
