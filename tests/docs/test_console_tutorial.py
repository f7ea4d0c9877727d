"""The tutorial of the console, docs/tutorial/console.md, on days of the demo: its query, and explanations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.docs.demo import demo_of
from tests.docs.pages import DOCS, blocks
from tidegate.console.pages.known_logs import KnownLogs
from tidegate.console.sql.running import run
from tidegate.console.sql.views import views_of
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.explanation.finding import explain
from tidegate.runtime.doctor.explanation.recomputation import from_topic
from tidegate.state.delta_log.positions import Position
from tidegate.state.earlier_batches import log_after
from tidegate.state.lake.opening import open_lake

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(3_600)]

DAYS, EXPLAINED = 7, 1_000
SEED = 2013
EMITTING = {"suppression", "stream_table_join", "windowed_aggregation", "pipeline"}
"""Kinds of the demo's operators that emit; a table emits nothing."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """The application of the demo after some days, with its broker."""
    with demo_of(tmp_path_factory.mktemp("demo"), DAYS) as application:
        yield application


def test_the_query_of_the_page_counts_late_departures(demo: Application) -> None:
    [query] = [block.text for block in blocks(DOCS / "tutorial" / "console.md") if block.language == "sql"]
    rows = run(query, views_of(KnownLogs(demo).as_of(None, None), demo.operators), 100)
    assert rows.column_names == ["key", "late"] and sum(rows["late"].to_pylist()) > 0


def test_a_thousand_random_emissions_are_computed_again_byte_for_byte(demo: Application) -> None:
    chosen = chosen_of(
        {name: found for name in demo.operators if (found := positions(demo, name))}, random.Random(SEED)
    )
    assert len(chosen) == EXPLAINED and {demo.operators[name].kind for name, _ in chosen} == EMITTING
    found = [(name, position, explain(demo, name, position, from_topic(demo, name, 30.0))) for name, position in chosen]
    wrong = [(name, position, each.verdict, each.why) for name, position, each in found if each.verdict != "equal"]
    assert wrong == []


def chosen_of(emissions: Mapping[str, Sequence[Position]], dice: random.Random) -> list[tuple[str, Position]]:
    """Random emissions, as many of each operator as it has, up to equal shares; the rest are of any."""
    share = EXPLAINED // len(emissions)
    shares = {name: dice.sample(found, min(share, len(found))) for name, found in emissions.items()}
    chosen = [(name, position) for name, found in shares.items() for position in found]
    others = sorted({(name, position) for name, found in emissions.items() for position in found} - set(chosen))
    return chosen + dice.sample(others, EXPLAINED - len(chosen))


def positions(application: Application, name: str) -> list[Position]:
    """The places of all emissions of the operator."""
    rows = log_after(open_lake(application.lake / name), None).read("emission", columns=Position._fields)
    return [Position(**row) for row in rows.to_pylist()]
