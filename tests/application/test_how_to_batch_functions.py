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
PROGRAM, FUNCTIONS, MEANS, MERGING, CHECK, CHECK_OF_MERGING = (
    block.text for block in BLOCKS if block.language == "python"
)
STOPS_FILE, MEANS_FILE = (block.text for block in BLOCKS if block.language == "yaml")
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
    yield imported("legs", FUNCTIONS, monkeypatch)


def imported(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the page, which can be imported."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(text, module.__dict__)
    return module


@pytest.mark.fast
def test_the_functions_pass_their_check(legs: ModuleType) -> None:
    exec(CHECK, legs.__dict__)


@pytest.mark.fast
def test_the_worst_delays_are_those_of_the_stops_of_known_carriers(legs: ModuleType) -> None:
    [config] = application_of(yaml.safe_load(STOPS_FILE)).operators.values()
    played = Partition(operator_for(config), 0)
    played.play([Row(b"k", json.dumps(flight).encode(), at, at) for at, flight in enumerate(FLIGHTS)])
    assert [json.loads(row["value"])["worst"] for row in played.trace.emissions] == [5, 9, 9]
    [rejected] = played.trace.rejected
    assert (rejected["offset"], rejected["cause"]) == (2, "legs:stops fails: KeyError: 'delay'")


@pytest.mark.fast
def test_the_means_are_those_of_the_delays_of_a_session(legs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    imported("merging", MERGING, monkeypatch)
    exec(CHECK_OF_MERGING, legs.__dict__)
    [config] = application_of(yaml.safe_load(MEANS_FILE)).operators.values()
    played = Partition(operator_for(config), 0)
    delays = [(0, 3), (20, 40), (55, 7), (40, -1), (58, 11), (400, 0)]
    rows = [
        Row(b"k", json.dumps({"delay": delay}).encode(), minute * 60_000, at)
        for at, (minute, delay) in enumerate(delays)
    ]
    played.play(rows[:4])
    played.play(rows[4:])
    assert [json.loads(row["value"]) for row in played.trace.emissions] == [{"mean": 12.0, "worst": 40}]


@pytest.mark.fast
def test_the_program_of_the_means_is_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, legs: ModuleType
) -> None:
    imported("merging", MERGING, monkeypatch)
    (tmp_path / "means.py").write_text(MEANS)
    program = load_application(tmp_path / "means.py:app")
    assert (
        application_of(yaml.safe_load(program.to_yaml())).operators
        == application_of(yaml.safe_load(MEANS_FILE)).operators
    )


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
