"""`tidegate advise`: graces, from the lateness in a log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.state.logs import commit_rows, new_log
from tidegate.cli.main import main
from tidegate.runtime.telemetry.batch_metrics import merge_batches

pytestmark = pytest.mark.fast

MINUTE_MS = 60_000
OPERATORS = {
    "weather": {"kind": "table_history", "input": "weather", "history_retention": "1d"},
    "chain": {
        "kind": "pipeline",
        "input": "flights",
        "steps": [
            {"name": "first", "kind": "deduplicate", "within": "1m", "grace": "5s"},
            {"name": "final", "kind": "suppression", "until": {"time_limit": "1m"}, "max_lateness": "3s"},
        ],
    },
    "joined": {"kind": "stream_table_join", "input": "flights", "table": "weather", "join": "left", "grace": "5m"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An application whose join has seen 1,000 records: 900 in time, 90 late by up to 4 ms, 10 by 10 minutes."""
    raw = {"application": "test", "lake": "lake", "keep_output": "forever", "kafka": {"bootstrap.servers": "nowhere:1"}}
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({**raw, "operators": OPERATORS}))
    log = new_log(tmp_path / "lake" / "joined")
    first = {"lateness_upto_0": 900, "lateness_upto_4": 40, "lateness_max": 4, "lateness_count": 940}
    second = {"lateness_upto_4": 50, "lateness_max": 4, "lateness_count": 50}
    third = {"lateness_upto_655360": 10, "lateness_max": 10 * MINUTE_MS, "lateness_count": 10}
    commit_rows(log, 1, {}, measured={0: first, 1: second})
    commit_rows(log, 2, {}, measured={0: merge_batches(first, third), 1: second})
    return path


def advise(*arguments: object):
    return CliRunner().invoke(main, ["advise", *map(str, arguments)])


def test_all_batches_and_partitions_are_counted_and_the_current_grace_is_shown(file: Path) -> None:
    told = json.loads(advise(file, "joined", "--json").stdout)
    assert (told["records"], told["lateness_max"], told["grace_now"]) == (1_000, 10 * MINUTE_MS, 5 * MINUTE_MS)
    assert [(each["grace"], each["share"]) for each in told["graces"]] == [
        (0, 0.9),
        (5, 0.99),
        (5 * MINUTE_MS, 0.99),
        (10 * MINUTE_MS, 1.0),
    ]


def test_the_text_output_is_a_table_with_bars_and_a_total(file: Path) -> None:
    told = advise(file, "joined").stdout
    assert "5m (now)" in told
    assert "99 % need a grace of 5ms, 99.9 % need a grace of 10m" in told
    assert "below the table's history_retention, 1d" in told
    assert "█" * 27 + "·" * 3 in told


def test_the_plot_is_a_picture(file: Path, tmp_path: Path) -> None:
    assert advise(file, "joined", "--plot", tmp_path / "graces.svg").exit_code == 0
    assert (tmp_path / "graces.svg").read_text().startswith("<svg")


def test_an_operator_without_lateness_is_refused_with_a_remedy(file: Path, tmp_path: Path) -> None:
    assert "name one of these: chain.first, chain.final, joined, weather" in advise(file, "jointed").stderr
    assert "no log yet" in advise(file, "weather").stderr
    commit_rows(new_log(tmp_path / "lake" / "weather"), 1, {}, measured={0: {"lateness_count": 7}})
    refused = advise(file, "weather")
    assert "7 records were read before" in refused.stderr
    assert refused.exit_code == 2


def test_each_step_of_a_pipeline_has_its_own_graces(file: Path, tmp_path: Path) -> None:
    measured = {
        "first.lateness_upto_0": 8,
        "first.lateness_count": 8,
        "final.lateness_upto_4": 2,
        "final.lateness_max": 3,
    }
    commit_rows(new_log(tmp_path / "lake" / "chain"), 1, {}, measured={0: {**measured, "final.lateness_count": 2}})
    told = json.loads(advise(file, "chain.final", "--json").stdout)
    assert (told["operator"], told["records"], told["lateness_max"], told["grace_now"]) == ("chain.final", 2, 3, 3_000)
    assert json.loads(advise(file, "chain.first", "--json").stdout)["grace_now"] == 5_000
    for unknown in ("chain", "chain.third"):
        assert "name one of these: chain.first, chain.final" in advise(file, unknown).stderr
    assert "no such step" in advise(file, "joined.first").stderr


def test_the_only_step_of_a_pipeline_needs_no_name(file: Path, tmp_path: Path) -> None:
    raw = yaml.safe_load(file.read_text())
    raw["operators"]["chain"]["steps"].pop()
    file.write_text(yaml.safe_dump(raw))
    commit_rows(new_log(tmp_path / "lake" / "chain"), 1, {}, measured={0: {"first.lateness_upto_0": 8}})
    assert json.loads(advise(file, "chain", "--json").stdout)["records"] == 8
