"""The service keeps its guarantees under all faults; each seed is a run, and the faults did happen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tidegate.contracts.kill_points import KillPoint
from tidegate.state.protocol_decisions import RecoveryMethod
from tidegate.testing.simulation import Settings, simulate
from tidegate.testing.simulation.campaign import Campaign, play_all
from tidegate.testing.simulation.chance import RATES
from tidegate.testing.simulation.settings import EDITED, JOINED, TABLES

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
FAST_SEEDS, SLOW_SEEDS = range(30), range(100_000, 100_400)
DEADLY_SEEDS, DEADLY_JOINS = range(200_000, 200_100), range(200_000, 200_040)


@pytest.mark.fast
def test_no_record_is_lost_repeated_or_reordered_in_a_few_runs() -> None:
    campaign = play_all(map(Settings.drawn, FAST_SEEDS), 1)
    _assert_passed(campaign)
    assert campaign.events["emissions"] > 5 * len(FAST_SEEDS)
    assert campaign.events["dead letters"] > len(FAST_SEEDS) // 2  # three configurations write them
    assert {fault for fault in RATES if not campaign.counts[fault]} == set()
    assert min(campaign.events[f"steps {how}"] for how in ("added", "removed")) > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_record_is_lost_repeated_or_reordered_in_many_runs() -> None:
    joins = [replace(deadly(seed), operator=JOINED) for seed in DEADLY_JOINS]  # they alone have leases
    campaign = play_all([*map(Settings.drawn, SLOW_SEEDS), *map(deadly, DEADLY_SEEDS), *joins], 2)
    _assert_passed(campaign)
    reached = {point for point in get_args(KillPoint) if campaign.events[point]}
    died_at = {point for point in reached if campaign.events[f"crash {point}"]}
    with_real_parts_alone = {"before_rescale_commit", "after_rescale_commit"}
    assert set(get_args(KillPoint)) - reached == with_real_parts_alone
    assert reached - died_at == set()
    assert min(campaign.counts[fault] for fault in RATES) > 5
    assert campaign.events["ended by Overtaken"] > 20
    assert campaign.events["transactions timed out"] > 5
    assert min(campaign.events[f"recovered by {way.value}"] for way in RecoveryMethod) > 5


@pytest.mark.fast
@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_seeds_that_once_failed_pass(file: Path) -> None:
    report = simulate(Settings.from_json(file.read_text()))
    assert report.problem is None, report.problem


@pytest.mark.fast
def test_the_same_settings_give_the_same_run() -> None:
    once, again = (simulate(replace(Settings.drawn(5), verbose=True)) for _ in range(2))
    assert (once.story, once.counts, once.events) == (again.story, again.counts, again.events)


@pytest.mark.fast
def test_a_transactional_id_that_kafka_has_forgotten_costs_an_undo_and_no_rebuild() -> None:
    faults = ("forgotten_id",)
    drawn = [
        settings for settings in map(Settings.drawn, range(16)) if not TABLES[settings.operator]
    ]  # these have a replica to make
    reports = [simulate(replace(settings, faults=faults, intensity=3.0)) for settings in drawn]
    assert [report.problem for report in reports] == [None] * len(reports)
    events = sum((report.events for report in reports), Counter[str]())
    assert sum(report.counts["forgotten_id"] for report in reports) > 10
    assert (events["recovered by undo"] > 3, events["recovered by rebuild"]) == (True, 0)


@pytest.mark.fast
def test_a_join_reads_its_table_after_another_program_merged_the_table_s_files() -> None:
    drawn = [replace(Settings.drawn(seed), operator=JOINED, rebuild_s=0.0) for seed in range(8)]
    reports = [simulate(replace(settings, faults=("foreign_optimize",), intensity=5.0)) for settings in drawn]
    assert [report.problem for report in reports] == [None] * len(reports)
    assert sum(report.counts["foreign_optimize"] for report in reports) > 50


@pytest.mark.fast
def test_the_steps_of_a_pipeline_come_and_go_while_processes_die_and_take_over() -> None:
    drawn = [replace(Settings.drawn(seed), operator=name) for seed in range(4, 8) for name in EDITED]
    reports = [simulate(replace(settings, faults=("change", "kill", "takeover"), intensity=2.0)) for settings in drawn]
    events = sum((report.events for report in reports), Counter[str]())
    assert [report.problem for report in reports] == [None] * len(reports)
    assert min(events["steps added"], events["steps removed"]) > 5
    assert events["applied"] > 5


@pytest.mark.fast
def test_settings_round_trip() -> None:
    settings = Settings.drawn(5)
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.fast
def test_without_faults_the_simulation_only_does_the_work() -> None:
    report = simulate(replace(Settings.drawn(5), faults=()))
    assert (report.problem, report.counts) == (None, Counter())
    assert report.events["emissions"] > 0
    assert [what for what in report.events if what.startswith(("crash", "ended by"))] == ["ended by NoneType"]


def deadly(seed: int) -> Settings:
    """Return a run in which processes only die, and at every seventh kill point: some points are reached seldom."""
    return replace(Settings.drawn(seed), faults=("kill", "rare_kill"), intensity=5.0)


def _assert_passed(campaign: Campaign) -> None:
    failed = {report.settings.seed: report.problem for report in campaign.failed}
    assert failed == {}
