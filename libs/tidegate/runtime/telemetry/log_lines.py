"""A service's lines: text for people, or JSON with fields for programs; without the secrets of its file."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from tidegate.runtime.configuration.application import Application

_FIELDS = "tidegate"
_PASSWORD_OF_LOGIN = re.compile(r'password\s*=\s*"((?:[^"\\]|\\.)*)"')


def about(operator: str, *, partition: int | None = None, batch: int | None = None) -> dict[str, Any]:
    """What a line is about, as the `extra` of a logging call: its fields where lines are JSON."""
    fields = {"operator": operator, "partition": partition, "batch": batch}
    return {_FIELDS: {name: value for name, value in fields.items() if value is not None}}


def speak_as(application: Application, text: str) -> None:
    """What is logged from here on has the form that the file asks for: JSON, or that of `text`."""
    form: type[logging.Formatter] = JsonLines if application.log == "json" else logging.Formatter
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(Discreet(form(text), application))


class JsonLines(logging.Formatter):
    """A line is a JSON object: time, level, message, what it is about, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        said |= getattr(record, _FIELDS, {})
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said)


class Discreet(logging.Formatter):
    """Another formatter's lines, in which the secrets of the file are `***`."""

    def __init__(self, inner: logging.Formatter, application: Application) -> None:
        super().__init__()
        self._inner, self._secrets = inner, secrets_of(application)

    def format(self, record: logging.LogRecord) -> str:
        """What the other one makes of it, cleaned."""
        line = self._inner.format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def secrets_of(application: Application) -> list[str]:
    """The passwords of broker and control database, the longest first, also as JSON would write them."""
    control = application.control_database
    found: set[str] = set() if control is None else set(control.secrets())
    for name, value in application.kafka.items():
        found.update(_PASSWORD_OF_LOGIN.findall(value))
        if "password" in name or "jaas" in name:
            found.add(value)
    written = found | {json.dumps(secret)[1:-1] for secret in found}
    return sorted(filter(None, written), key=len, reverse=True)
