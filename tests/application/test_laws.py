"""A program and a YAML file are one model: each can express the other, and both are read in the same way."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

import tidegate as tg
from tests.application.programs import application, is_in_order_of_ends, write
from tests.hypothesis_profile import many
from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.registry import config_type, kinds
from tidegate.operators.testing.cases import cases
from tidegate.runtime.configuration.application import config_of, settings_of

pytestmark = pytest.mark.fast

ALLOWED = (
    "tidegate.operators.testing.joiners",
    "tidegate.operators.testing.evictors",
    "tidegate.operators.testing.batch_functions",
    "tidegate.operators.testing.reducers",
)


CASES = list(cases())


@st.composite
def operators(draw: st.DrawFn, case: str) -> dict[str, OperatorConfig]:
    """Any operator of the kind, with topics and formats, and the table that it reads."""
    config: OperatorConfig = draw(cases()[case].configs)
    more = draw(st.fixed_dictionaries({}, optional=_everywhere(config)))
    loses_fields = any({"map", "flat_map", "select"} & step.keys() for step in settings_of(config).get("steps", ()))
    assume(not (loses_fields and "timestamp" in more))
    config = config_of(settings_of(config) | more)
    assume(is_in_order_of_ends(settings_of(config).get("steps", [])))
    windows = "headers" if isinstance(config, KeyRules) and config.windowed else "none"
    assume(all(read.grace < 2**61 for read in config.reads()))
    raw = {"kind": "table_history", "input": "writes", "windows": windows}
    tables = {read.table: config_of(raw | {"history_retention": f"{read.grace + 1}ms"}) for read in config.reads()}
    return tables | {"operator": config}


def _everywhere(config: OperatorConfig) -> dict[str, st.SearchStrategy[Any]]:
    """Options of every kind, as far as this one has them."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "timestamp": st.sampled_from([{"field": "at"}, {"field": "at", "unit": "s"}, {"path": "w.at"}]),
        **({} if "value" in vars(config) else {"value_format": st.sampled_from(["bytes", "string", "json"])}),
        "dead_letters": st.just("letters"),
        "rewind_window": st.sampled_from(["0ms", "1d"]),
    }
    if config.streams == 1:
        options["further_inputs"] = st.just(["returns", "orders"])
    if config.as_table() is None:
        options |= {"output": st.just("results"), "idle_after": st.just("5s"), "max_ahead": st.just("1h")}
    return options


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@many
def test_an_application_written_as_yaml_reads_back_equal(case: str, data: st.DataObject) -> None:
    found = data.draw(operators(case))
    app = program(found)
    text = app.to_yaml()
    assert tg.Application.from_yaml(text) == app
    assert tg.Application.from_yaml(text).to_yaml() == text


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@many
def test_a_program_can_express_every_file(case: str, data: st.DataObject) -> None:
    found = data.draw(operators(case))
    raw = {
        "application": "flights",
        "lake": "./lake",
        "keep_output": "30d",
        "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
        "allow": list(ALLOWED),
        "operators": {name: settings_of(config) for name, config in found.items()},
    }
    assert program(found) == tg.Application.from_yaml(yaml.safe_dump(raw, sort_keys=False))
    assert program(found).configuration().operators == found


def program(found: dict[str, OperatorConfig]) -> tg.Application:
    app = application(allow=ALLOWED)
    for name, config in found.items():
        write(app, name, config)
    return app


def test_every_kind_can_be_written() -> None:
    assert {cases()[name].holding.kind for name in CASES} == set(kinds())


def test_every_setting_of_a_file_can_be_written() -> None:
    app = application(
        lake="s3://bucket/lake",
        lake_options={"profile": "flights"},
        keep_output="forever",
        kafka={"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "SSL"},
        state="/disk",
        control=None,
        takeover_after="10s",
        trigger="1s",
        lake_budget="0.5 USD/day",
        workers_per_operator=3,
        allow=["joins"],
        log="json",
        telemetry_port=9_100,
        telemetry_host="0.0.0.0",
        spark_master="local[2]",
        spark_conf={"spark.ui.enabled": "true"},
    )
    found = app.configuration()
    assert found.model_fields_set == set(type(found).model_fields)
    assert tg.Application.from_yaml(app.to_yaml()) == app


@pytest.mark.parametrize("kind", kinds())
def test_an_operator_of_any_kind_can_be_given_by_its_rules(kind: str) -> None:
    config = next(case.holding for case in cases().values() if case.holding.kind == kind)
    rules_type: Any = next(each for each in config_type(kind).__mro__ if each.__name__.endswith("Rules"))
    rules = rules_type.model_validate(
        {name: value for name, value in settings_of(config).items() if name in rules_type.model_fields}
    )
    app = application(allow=ALLOWED)
    app.stream("records", name="by_rules").apply(rules).keep()
    try:
        found = app.configuration().operators["by_rules"]
    except ConfigurationError as error:  # a join, whose table or right stream is not here
        [problem] = error.problems
        assert "not a table of this file" in problem.cause or problem.where.endswith("right")
        return
    assert settings_of(found).items() >= settings_of(rules).items()
