"""Log lines with fields and without secrets."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tests.runtime.telemetry.conftest import CANARY, RAW, application
from tidegate.runtime.telemetry.driver_status import one_line
from tidegate.runtime.telemetry.log_lines import (
    JsonLines,
    SecretMaskingFormatter,
    log_fields,
    secrets_of,
    set_log_format,
)

pytestmark = pytest.mark.fast

LOGIN = RAW["kafka"]["sasl.jaas.config"]


def record(message: str, *values: object, **more: object) -> logging.LogRecord:
    return logging.getLogger("tidegate").makeRecord(
        "tidegate", logging.WARNING, "file", 1, message, values, None, extra=more or None
    )


def test_a_json_line_has_fields_for_its_operator_partition_and_batch() -> None:
    line = JsonLines().format(record("%s waits", "updates", **log_fields("updates", partition=3, batch=12)))
    said = json.loads(line)
    assert said.pop("time").endswith("+00:00")
    assert said == {"level": "warning", "message": "updates waits", "operator": "updates", "partition": 3, "batch": 12}


def test_fields_that_a_line_does_not_have_are_left_out() -> None:
    said = json.loads(JsonLines().format(record("updates: ready", **log_fields("updates"))))
    assert said.keys() == {"time", "level", "message", "operator"}
    assert json.loads(JsonLines().format(record("hello"))).keys() == {"time", "level", "message"}


def test_an_error_s_lines_are_one_line_and_its_trace_a_field() -> None:
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        entry = logging.LogRecord("tidegate", logging.ERROR, "file", 1, "%s", ("a\nb",), sys.exc_info())
    line = JsonLines().format(entry)
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["trace"]


@pytest.mark.parametrize("form", [JsonLines(), logging.Formatter("%(message)s")])
def test_no_log_line_contains_a_secret_of_the_file(form: logging.Formatter) -> None:
    here = application()
    line = SecretMaskingFormatter(form, here).format(record("no login: %s %s", here.kafka, here.control_database.url))  # type: ignore[union-attr]
    assert CANARY not in line
    assert "127.0.0.1:1" in line, "what is not secret stays"


def test_a_password_with_quotes_and_backslashes_is_removed_in_its_json_form() -> None:
    login = f'module required username="a" password="{CANARY}\\"\\\\x";'
    here = application(kafka={"bootstrap.servers": "b:1", "sasl.jaas.config": login})
    line = SecretMaskingFormatter(JsonLines(), here).format(record("%s", login))
    assert CANARY not in line


def test_the_control_database_s_password_is_removed_in_its_json_form_too() -> None:
    here = application(control=f"postgresql+psycopg://tidegate:{CANARY}%22x@127.0.0.1:1/control")
    line = SecretMaskingFormatter(JsonLines(), here).format(record("%s", f'password {CANARY}"x is wrong'))
    assert CANARY not in line and json.loads(line)["message"] == "password *** is wrong"


def test_a_file_without_secrets_has_none() -> None:
    assert secrets_of(application(kafka={"bootstrap.servers": "b:1"}, control=None)) == []


def test_the_file_sets_the_format_of_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    set_log_format(application(log="json"), "%(message)s")
    assert json.loads(handler.format(record("hello")))["message"] == "hello"
    set_log_format(application(), "%(levelname)s %(message)s")
    assert handler.format(record("hello")) == "WARNING hello"


def test_an_error_that_contains_settings_reaches_the_status_without_secrets() -> None:
    """What a driver tells on one line comes from errors; none of them shows a setting."""
    assert CANARY not in one_line(RuntimeError(f"{application()!r}"))
