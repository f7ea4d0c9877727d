"""Formats a service's log lines, as text or JSON, with the secrets of its configuration masked."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from tidegate.runtime.configuration.application import Application

_FIELDS = "tidegate"
_PASSWORD_OF_LOGIN = re.compile(r'password\s*=\s*"((?:[^"\\]|\\.)*)"')


def log_fields(operator: str, *, partition: int | None = None, batch: int | None = None) -> dict[str, Any]:
    """Return the `extra` of a logging call: the operator, partition and batch as fields of a JSON line."""
    fields = {"operator": operator, "partition": partition, "batch": batch}
    return {_FIELDS: {name: value for name, value in fields.items() if value is not None}}


def set_log_format(application: Application, text: str) -> None:
    """Set the format of all later log lines to the configured one: JSON, or text in the format `text`."""
    form: type[logging.Formatter] = JsonLines if application.log == "json" else logging.Formatter
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(SecretMaskingFormatter(form(text), application))


class JsonLines(logging.Formatter):
    """Formats a line as a JSON object: time, level, message, the fields of `log_fields`, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        fields |= getattr(record, _FIELDS, {})
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class SecretMaskingFormatter(logging.Formatter):
    """Wraps another formatter and replaces the configuration's secrets by `***`."""

    def __init__(self, inner: logging.Formatter, application: Application) -> None:
        super().__init__()
        self._inner, self._secrets = inner, secrets_of(application)

    def format(self, record: logging.LogRecord) -> str:
        """Return the wrapped formatter's line with secrets masked."""
        line = self._inner.format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def secrets_of(application: Application) -> list[str]:
    """Return the passwords of broker and control database, plain and escaped as in JSON, longest first."""
    control = application.control_database
    found: set[str] = set() if control is None else set(control.secrets())
    for name, value in application.kafka.items():
        found.update(_PASSWORD_OF_LOGIN.findall(value))
        if "password" in name or "jaas" in name:
            found.add(value)
    written = found | {json.dumps(secret)[1:-1] for secret in found}
    return sorted(filter(None, written), key=len, reverse=True)
