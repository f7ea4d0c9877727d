"""A person decides about output for which neither a mark nor the topic shows whether it was published."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.lakes import lake_at
from tests.living_driver import living_driver
from tests.runtime.miniature import NAME, application, use_broker
from tests.runtime.publishing.test_publication import emissions, marks_sent, of_steps, payloads, stamps
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.state.logs import commit_rows
from tidegate.cli.main import main
from tidegate.contracts.batch_metadata import Sink
from tidegate.contracts.log_schema import log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.publishing import publication
from tidegate.runtime.repair.settle import NothingUndecided, settle
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    """Both output partitions have deleted all that was in them."""
    scripted = ScriptedKafka()
    scripted.starts = {0: 100, 1: 100}
    use_broker(monkeypatch, scripted)
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: None)
    return scripted


@pytest.fixture
def here(tmp_path: Path) -> Application:
    """An operator of which both partitions have output in batch 1."""
    made = application(tmp_path)
    columns = operator_for(made.operators[NAME]).columns
    log = OperatorLog.open(lake_at(made.lake.folder / NAME), NAME, log_schema(columns), create=True)
    commit_rows(
        log,
        1,
        {("emission", 0): emissions("a"), ("emission", 1): emissions("b")},
        operator=NAME,
        input="in",
        next_offset={0: 10, 1: 20},
        output_batch={0: 1, 1: 1},
        topics={"in": "id of in", "out": "id of out"},
    )
    return made


def newest(of: Application):
    return LogVersion.at(lake_at(of.lake.folder / NAME), None).newest()


@pytest.mark.parametrize(("published", "due"), [(True, 0), (False, 2)])
def test_a_settlement_is_recorded_by_a_claim_and_the_marks_are_written(
    kafka: ScriptedKafka, here: Application, published: bool, due: int
) -> None:
    before = newest(here)
    claim = settle(here, NAME, published=published)
    assert claim == newest(here)
    word = "published" if published else "unpublished"
    assert (claim.action, claim.settled, claim.epoch) == ("settle", {0: (1, word), 1: (1, word)}, before.epoch + 1)
    assert len(payloads(kafka)) == due
    mark = f"tidegate/1 {claim.table_id} {claim.batch if published else 1}"
    assert set(marks_sent(kafka)) >= {(10, mark), (20, mark)}
    assert kafka.names[-1] == "EndTxn"


def test_a_settlement_publishes_every_topic_of_a_pipeline(kafka: ScriptedKafka, tmp_path: Path) -> None:
    steps = [
        {"name": "first", "kind": "deduplicate", "within": "forever"},
        {"to": "dead"},
        {"name": "slow", "kind": "suppression", "until": {"time_limit": "1h"}},
    ]
    here = application(tmp_path, kind="pipeline", until=None, steps=steps)
    columns = operator_for(here.operators[NAME]).columns
    log = OperatorLog.open(lake_at(here.lake.folder / NAME), NAME, log_schema(columns), create=True)
    commit_rows(
        log,
        1,
        {("emission", 0): of_steps(("first", "a"), ("slow", "b"))},
        operator=NAME,
        input="in",
        next_offset={0: 10, 1: 20},
        output_batch={0: 1},
        topics={"in": "id of in", "out": "id of out", "dead": "id of dead"},
        sinks={"dead": Sink("first", 0, None), "out": Sink("slow", 0, None)},
    )
    claim = settle(here, NAME, published=False)
    assert (claim.settled, claim.sinks.keys()) == ({0: (1, "unpublished")}, {"dead", "out"})
    assert (stamps(kafka, "dead"), stamps(kafka, "out")) == ([(b"a", b"0")], [(b"b", b"1")])


def test_partitions_that_are_not_named_stay_undecided(kafka: ScriptedKafka, here: Application) -> None:
    assert settle(here, NAME, published=False, partitions=[1]).settled == {1: (1, "unpublished")}
    assert {request.topic_data[0].partition_data[0].index for request in kafka.named("Produce")} == {1}
    assert {request.transactional_id for request in kafka.named("TxnOffsetCommit")} == {f"app-{NAME}-1"}


def test_output_with_a_mark_cannot_be_settled(kafka: ScriptedKafka, here: Application) -> None:
    before = newest(here)
    kafka.marks = dict.fromkeys((0, 1), (0, f"tidegate/1 {before.table_id} 1"))
    with pytest.raises(NothingUndecided):
        settle(here, NAME, published=False)
    assert (newest(here), payloads(kafka)) == (before, [])


def test_settle_requires_a_decision_and_a_stopped_driver(
    kafka: ScriptedKafka, here: Application, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    operator = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}}
    said = {"application": "app", "lake": "lake", "keep_output": "forever", "kafka": {"bootstrap.servers": "nowhere:1"}}
    file.write_text(yaml.safe_dump({**said, "operators": {NAME: operator}}))
    assert "--published or --unpublished" in CliRunner().invoke(main, ["settle", str(file), NAME]).output
    with living_driver(lake_at(here.lake.folder / NAME)):
        refused = CliRunner().invoke(main, ["settle", str(file), NAME, "--published"])
    assert "process 77 on head" in refused.output and "tidegate stop" in refused.output
    done = CliRunner().invoke(main, ["settle", str(file), NAME, "--published"])
    assert done.output == f"{NAME}: marked as published partition 0 batch 1, partition 1 batch 1; recorded as batch 2\n"
