"""A value of the right type that means nothing is refused with problem, value and remedy, at every parameter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import tidegate as tg
from tests.application.programs import application
from tests.application.test_handles import Waiting, waiting
from tests.application.test_wrong_types import ALL, FUNCTIONS, refusal
from tidegate.contracts.errors import ConfigurationError, Problem, TidegateError

pytestmark = pytest.mark.fast
__all__ = ["waiting"]

DURATIONS = ["5 minuts", "-5m", "", "5", "1.5h", "5M", "5 m", "9" * 20 + "d", timedelta(seconds=-1), timedelta(0, 0, 5)]
ZEROS: list[Any] = [0, "0", "0ms", "PT0S", timedelta(0)]
NAMES = ["", "My updates", "a.b", "a/b", "größe", "n" * 64, "1st", "..", "a\n"]
TOPICS = ["", " ", "a b", "a/b", "größe", "t" * 250, ".", "..", "a\n"]
TOPIC_LISTS: list[Any] = [[], ["a", "a"], ["a", ""], ["a b", "c"], ["a", 5], ["a", ["b"]], [f"t{n}" for n in range(33)]]
FIELDS = ["", " "]
FUNCTION_NAMES = ["", "count", "gates:", ":worst", "a b:c", "json.dumps", "a..b:c", "sum(x)"]
SIZES = ["64MB", "64 MiB", "", "-1B", -1, 2**70]
SCHEMAS: list[Any] = [{}, {"delay": "int6"}, {"": "int64"}, {"weather": {}}]
CHOICES = ["", "unknown", "LEFT"]

DURATION_PARAMETERS = [
    "max_ahead",
    "idle_after",
    "rewind_window",
    "history",
    "keep_output",
    "takeover_after",
    "trigger",
    "length",
    "grace",
    "advance",
    "gap",
    "duration",
    "age",
    "within",
    "retention",
    "max_length",
    "wait_for_table",
    "max_lateness",
    "timeout",
]
CHOICE_PARAMETERS = [
    "how",
    "when",
    "when_full",
    "emit",
    "timer",
    "bytes_of",
    "versions",
    "before_history",
    "windows",
    "unit",
    "log",
    "time",
]
CONTENT: dict[str, list[Any]] = {
    **dict.fromkeys(DURATION_PARAMETERS, DURATIONS),
    **dict.fromkeys(CHOICE_PARAMETERS, CHOICES),
    **dict.fromkeys(("name",), NAMES),
    **dict.fromkeys(("right", "dead_letters"), TOPICS),
    "topic": [*TOPICS, *TOPIC_LISTS],
    **dict.fromkeys(("field", "timestamp"), FIELDS),
    **dict.fromkeys(("function", "joiner", "before", "after", "distance", "aggregates"), FUNCTION_NAMES),
    **dict.fromkeys(("size", "hold_for_readers"), SIZES),
    "count": [-1, 1.5, "", 2**70],
    "every": [0, -1, 1.5, "", 2**70],
    "threshold": [float("inf"), "far", ""],
    "kafka": ["", " ", ",", "host:port", "host:0", "host:65536", "a b:1", "host:", {}, {"bootstrap.server": "x:1"}],
    "lake": ["", " ", "hdfs://namenode/lake", "s3://", "~/lake"],
    "lake_budget": ["", "1", "1 EUR/day", "0 USD/day", 1.0],
    "workers_per_operator": [0, -1, "many"],
    "lake_options": [{"secret_access_key": "x"}],
    "state": ["", "s3://bucket/state", "~/state"],
    "control": ["", "control.db", "mysql://host/control", "sqlite:///"],
    "allow": ["", "a b", "gates:worst", [""], ["gates", "gates/worst"]],
    "telemetry_port": [0, -1, 65_536, "http"],
    "telemetry_host": ["", " ", "a b"],
    "spark_master": ["", " "],
    "spark_conf": [{"spark.speculation": "true"}, {"spark.sql.shuffle.partitions": 8}],
    "source": ["", "a: b", "[1, 2]", "a: [", "operators: 5", "flights.yaml"],
    "version": [True, 1.5],
    "condition": ["", "delay <", "true; false", "sum(1)", "now() > 5", "5"],
    "reason": [""],
    **dict.fromkeys(("fields", "emits"), SCHEMAS),
    "schema": [{}, {"type": "record"}, {"type": "long"}],
    "schemas": [""],
    "headers": [{"trace": tg.json()}, {"trace": "string"}],
    "message": ["", "a b", "Other"],
    "number": [-1, 1.5, "", 2**70],
    "partitions": [0, -1, 1.5, "many", 2**70],
}
"""Values of the right types, by the names of parameters, that mean nothing."""
POSITIVE = ("length", "advance", "gap", "max_length", "within", "retention")
"""Durations that cannot be 0."""
OF_OTHER_TYPES = ("key", "value", "window", "close", "rules", "table", "evictor", "limits", "bounds", "query", "other")
"""Parameters whose values are made by public functions themselves, which are tried here, or are SQL."""

FOREIGN = (
    "Input should",
    "should match",
    "Value error",
    "valid integer",
    "valid string",
    "ValidationError",
    "pydantic",
)
"""Words of pydantic."""


def cases() -> Iterator[tuple[str, str, Any]]:
    for name, parameter in ALL:
        for wrong in CONTENT.get(parameter, []) + (ZEROS if parameter in POSITIVE else []):
            yield name, parameter, wrong


def problems_of(error: TidegateError) -> list[Problem]:
    if isinstance(error, ConfigurationError):
        return list(error.problems)
    return [Problem(where="", value=error.value, cause=error.problem, remedy=error.remedy)]


@pytest.mark.parametrize(("name", "parameter"), sorted({(name, parameter) for name, parameter, _ in cases()}))
def test_a_value_that_means_nothing_is_refused_in_plain_words(name: str, parameter: str, waiting: Waiting) -> None:
    for _, _, wrong in (case for case in cases() if case[:2] == (name, parameter)):
        error = refusal(name, parameter, wrong)
        assert error is not None, f"{wrong!r} was taken"
        assert not [word for word in FOREIGN if word in str(error)], error
        for problem in problems_of(error):
            assert problem.cause and problem.remedy, (wrong, problem)
            assert problem.value is not None or problem.cause in ("required, but missing", "unknown key"), problem


def test_every_parameter_of_every_public_function_is_tried_or_takes_what_these_functions_make() -> None:
    assert {parameter for _, parameter in ALL} <= {*CONTENT, *OF_OTHER_TYPES}
    assert len(FUNCTIONS) > 20 and len(list(cases())) > 700


@pytest.mark.parametrize("aggregate", ["count", "sum(amount)", "", "count()"])
def test_an_aggregate_by_its_name_as_text_names_the_functions_to_call(aggregate: str) -> None:
    app = application()
    app.stream("gates", name="sizes").window(tg.unlimited()).aggregate(aggregate).keep()
    with pytest.raises(ConfigurationError) as caught:
        app.check()
    [problem] = caught.value.problems
    assert problem.value == aggregate and problem.cause == "not an aggregate" and "tg.count()" in problem.remedy


def test_an_evictor_without_its_functions_is_one_problem() -> None:
    incomplete: list[Any] = [{}, {"before": "gates:old"}, {"after": "gates:old"}, {"when": "after"}]
    for functions in incomplete:
        app = application()
        window = app.stream("gates", name="sizes").window(tg.unlimited())
        window.aggregate(tg.first(), evictor=tg.evict(**functions)).keep()
        with pytest.raises(ConfigurationError) as caught:
            app.check()
        [problem] = caught.value.problems
        assert problem.cause == "a function is missing" and "tg.evict(before=" in problem.remedy


def test_a_missing_value_is_not_shown_as_none() -> None:
    with pytest.raises(ConfigurationError) as caught:
        tg.Application.from_yaml("application: flights")
    assert "None" not in str(caught.value)
