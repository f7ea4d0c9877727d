"""The how-to on batch functions: its functions pass their check, and its program does what the page says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.docs.pages import blocks as page_blocks
from tests.patience import PATIENCE_S
from tidegate.application.loading import load_application
from tidegate.contracts.records import Row
from tidegate.devkit.produce_consume import read_all, write_all
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition
from tidegate.runtime.configuration.application import application_of

PAGE = DOCS / "how-to" / "batch-functions.md"
BLOCKS = [block for block in page_blocks(PAGE) if block.language in ("python", "yaml")]
[PROGRAM] = [block.text for block in BLOCKS if block.text.startswith("# app.py\n")]
FUNCTIONS, CHECK = (block.text for block in BLOCKS if block.language == "python" and block.text != PROGRAM)
FLIGHTS = [
    {"carrier": "AA", "stops": [{"airport": "JFK", "delay": 5}, {"airport": "LAX", "delay": 9}]},
    {"carrier": "B6", "stops": [{"airport": "JFK", "delay": 70}]},
    {"carrier": "UA", "stops": [{"airport": "JFK"}]},
    {"carrier": "UA", "stops": [{"airport": "JFK", "delay": 0}, {"airport": "SFO", "delay": 7}]},
    {"carrier": "UA", "stops": []},
]


@pytest.fixture
def legs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the page's functions, which can be imported."""
    module = ModuleType("legs")
    monkeypatch.setitem(sys.modules, "legs", module)
    exec(FUNCTIONS, module.__dict__)
    yield module


@pytest.mark.fast
def test_the_functions_pass_their_check(legs: ModuleType) -> None:
    exec(CHECK, legs.__dict__)


@pytest.mark.fast
def test_the_worst_delays_are_those_of_the_stops_of_known_carriers(legs: ModuleType) -> None:
    [text] = [block.text for block in BLOCKS if block.language == "yaml"]
    [config] = application_of(yaml.safe_load(text)).operators.values()
    played = Partition(operator_for(config), 0)
    played.play([Row(b"k", json.dumps(flight).encode(), at, at) for at, flight in enumerate(FLIGHTS)])
    assert [json.loads(row["value"])["worst"] for row in played.trace.emissions] == [5, 9, 9]
    [rejected] = played.trace.rejected
    assert (rejected["offset"], rejected["cause"]) == (2, "legs:stops fails: KeyError: 'delay'")


@pytest.mark.broker
@pytest.mark.spark
def test_spark_s_workers_import_the_functions_from_the_folder_of_the_program(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "legs.py").write_text(FUNCTIONS)
    (tmp_path / "app.py").write_text(PROGRAM)
    write_all(kafka, "departures", [(0, b"k", json.dumps(each).encode(), at) for at, each in enumerate(FLIGHTS)])
    with load_application(tmp_path / "app.py:app").start() as running:
        running.await_caught_up(f"{PATIENCE_S}s")
        [rejected] = running.sql("SELECT cause FROM worst_rejected")
    assert rejected["cause"] == "legs:stops fails: KeyError: 'delay'"
    assert [json.loads(value or b"")["worst"] for _, value, _ in read_all(kafka, "worst-delays")[0]] == [5, 9, 9]
