"""The how-to on evictors: its configurations are valid, and its functions do what it says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.docs.pages import blocks as page_blocks
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.driver import Driver
from tidegate.runtime.configuration.application import Application, application_of

pytestmark = pytest.mark.fast

PAGE = DOCS / "how-to" / "evictors.md"


def blocks(language: str) -> list[str]:
    """The blocks of a language, but for the program, which `tests/docs/test_programs_of_pages.py` checks."""
    texts = (each.text for each in page_blocks(PAGE) if each.language == language)
    return [text for text in texts if not text.startswith("# app.py\n")]


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module of the page's functions can be imported."""
    module = ModuleType("delays")
    exec("\n".join(blocks("python")), module.__dict__)
    monkeypatch.setitem(sys.modules, "delays", module)
    yield


def applications() -> dict[str, Application]:
    """The configurations, by the operator that each has."""
    read = [application_of(yaml.safe_load(block)) for block in blocks("yaml")]
    return {name: application for application in read for name in application.operators}


def driver(name: str) -> Driver:
    return Driver(operator_for(applications()[name].operators[name]))


def test_the_worst_delays_are_those_of_the_newest_hundred() -> None:
    tested = driver("worst_delays")
    told: list[Any] = []
    for at in range(200):
        told += [json.loads(each.value or b"") for each in tested.pipe("UA", json.dumps({"delay": 500 - at}), at)]
    assert len(told) == 20
    assert (told[0], told[-1]) == ([498, 499, 500], [398, 399, 400])


def test_repeated_gates_do_not_count() -> None:
    tested = driver("changes_of_gate")
    for at, (flight, gate) in enumerate([("UA1", "A1"), ("UA1", "A1"), ("UA2", "A1"), ("UA1", "B2"), ("UA1", "B2")]):
        tested.pipe(flight, json.dumps({"gate": gate}), at)
    found = {each.key: json.loads(each.value or b"") for each in tested.advance(3_600_000)}
    assert found == {
        b"UA1": {"count": 2, "first": "A1", "last": "B2"},
        b"UA2": {"count": 1, "first": "A1", "last": "A1"},
    }


def test_every_option_that_replaces_one_of_flink_s_is_accepted() -> None:
    text = PAGE.read_text()
    table = text[text.index("## From Flink") : text.index("The following behavior is the same")]
    options = [text for text in re.findall(r"`([^`]+)`", table) if text.startswith(("evictor:", "every:", "window:"))]
    assert len(options) == 7
    for text in options:
        option = yaml.safe_load(text.replace("...", "delays:repeated"))
        if "unlimited" not in option.get("window", {}):
            option = {"window": option.get("window", {"tumbling": "1h"}) | {"grace": 0}} | without_window(option)
        emit = {} if "every" in option else {"emit": "updates"}
        operator = {"kind": "windowed_aggregation", "input": "in", "aggregate": {"count": True}} | emit | option
        whole = yaml.safe_load(blocks("yaml")[0]) | {"operators": {"tested": operator}}
        operator_for(application_of(whole).operators["tested"])


def without_window(option: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in option.items() if name != "window"}
