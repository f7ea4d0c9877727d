"""Claims: their order, detection of newer claims, and where publishing begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.miniature import NAME, application
from tests.runtime.publishing.test_publication import emissions
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.state.logs import a_file
from tidegate.contracts.batch_metadata import BatchMeta, Sink
from tidegate.contracts.errors import EngineError, Unavailable
from tidegate.runtime.batch_loop.claim import Claimant, Claimed, Overtaken
from tidegate.runtime.batch_loop.next_metadata import after_batch
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


def claimant(folder: Path, kafka: ScriptedKafka, follows: int | None = None, **operator: Any) -> Claimant:
    given = application(folder, **operator)
    return Claimant(given, NAME, lambda: kafka, deadline_s=5.0, follows=follows)  # type: ignore[arg-type, return-value]


def emit(claimed: Claimed) -> BatchMeta:
    """A batch with an emission in partition 0 is committed, and not published."""
    batch = claimed.meta.batch + 1
    meta = after_batch(claimed.meta, [], batch=batch, attempt=f"attempt{batch}", clock=0)
    rows = emissions("value")
    file = a_file(claimed.log, "emission", 0, rows, batch=batch, attempt=meta.attempt, topic="in")
    claimed.log.commit(meta, [file])
    return meta


def refuse(claimed: Claimed, kafka: ScriptedKafka) -> None:
    """A batch with a late record in partition 0 is committed, and not published; the mark is that of the claim."""
    kafka.marks[0] = (0, f"tidegate/1 {claimed.log.table_id} {claimed.meta.batch}")
    batch = claimed.meta.batch + 1
    meta = after_batch(claimed.meta, [], batch=batch, attempt=f"attempt{batch}", clock=0)
    rows = emissions("value").append_column("offset", [[batch]])
    file = a_file(claimed.log, "late", 0, rows, batch=batch, attempt=meta.attempt, topic="in")
    claimed.log.commit(meta, [file])


def noting_commits(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit stands among the requests, in its place."""
    real = OperatorLog.commit

    def commit(log: OperatorLog, *given: Any) -> None:
        real(log, *given)
        kafka.sent_together.append(["commit"])

    monkeypatch.setattr(OperatorLog, "commit", commit)


def outputs(kafka: ScriptedKafka) -> list[str]:
    return [request.topic_data[0].name for request in kafka.named("Produce")]


def test_a_start_claims_then_initialises_ids_then_reads_marks_then_publishes(
    kafka: ScriptedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = claimant(tmp_path, kafka).claim()
    kafka.marks[0] = (0, f"tidegate/1 {first.log.table_id} {first.meta.batch}")
    emit(first)
    kafka.sent_together.clear()
    noting_commits(kafka, monkeypatch)
    claimed = claimant(tmp_path, kafka).claim()
    steps = [name for [name] in kafka.sent_together]
    initialised = ["InitProducerId", "InitProducerId", "OffsetFetch"]
    assert steps == ["ListOffsets", "commit", *initialised, "Produce", "TxnOffsetCommit", "EndTxn"]
    assert claimed.meta.epoch == first.meta.epoch + 1


def test_a_superseded_driver_does_not_claim_again(kafka: ScriptedKafka, tmp_path: Path) -> None:
    older, newer = claimant(tmp_path, kafka), claimant(tmp_path, kafka)
    older.claim()
    claimed = newer.claim()
    kafka.asked.clear()
    with pytest.raises(Overtaken):
        older.claim()
    assert LogVersion.at(claimed.log.lake, None).newest() == claimed.meta
    assert kafka.named("InitProducerId") == []


def test_a_claim_does_not_follow_an_epoch_that_its_driver_has_not_seen(kafka: ScriptedKafka, tmp_path: Path) -> None:
    """Two drivers stand by. Both see that epoch 1 is gone; the one that comes second leaves the first alone."""
    claimant(tmp_path, kafka).claim()
    first, second = (claimant(tmp_path, kafka, follows=1) for _ in range(2))
    assert first.claim().meta.epoch == 2
    with pytest.raises(Overtaken):
        second.claim()


def test_a_driver_s_own_claim_in_doubt_is_not_a_takeover(
    kafka: ScriptedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second claim landed, without an answer."""
    driver = claimant(tmp_path, kafka)
    driver.claim()
    real = OperatorLog.commit

    def landed(log: OperatorLog, *given: Any) -> None:
        real(log, *given)
        raise Unavailable("the lake does not say whether it is committed")

    with monkeypatch.context() as patch:
        patch.setattr(OperatorLog, "commit", landed)
        with pytest.raises(EngineError):
            driver.claim()
    assert driver.claim().meta.epoch == 3


def test_publishing_starts_at_the_claim_in_which_output_was_configured(kafka: ScriptedKafka, tmp_path: Path) -> None:
    """claim without output, batch 1 with emissions --- claim with output: batch 1 is not published"""
    emit(claimant(tmp_path, kafka, output=None).claim())
    claimed = claimant(tmp_path, kafka).claim()
    assert claimed.meta.published_from == claimed.meta.batch
    assert outputs(kafka) == []
    emit(claimed)
    again = claimant(tmp_path, kafka).claim()
    assert again.meta.published_from == claimed.meta.batch


def test_each_output_of_a_pipeline_is_noted_from_the_claim_on_that_configured_it(
    kafka: ScriptedKafka, tmp_path: Path
) -> None:
    """claim with one output --- claim with two: the first one goes on, and another step's output begins anew"""
    held = {"name": "held", "kind": "suppression", "until": {"time_limit": "1s"}}
    first = {"name": "first", "from": "input", "kind": "deduplicate", "within": "forever"}
    two = {"kind": "pipeline", "until": None, "output": None}
    before = claimant(tmp_path, kafka, **two, steps=[held, {"to": "out"}, first]).claim().meta
    assert before.sinks == {"out": Sink("held", before.batch, None)}
    after = claimant(tmp_path, kafka, **two, steps=[held, {"to": "out"}, first, {"to": "dead"}]).claim().meta
    assert after.sinks == before.sinks | {"dead": Sink("first", after.batch, None)}
    swapped = claimant(tmp_path, kafka, **two, steps=[held, first, {"to": "out"}]).claim().meta
    assert swapped.sinks == {"out": Sink("first", swapped.batch, None)}


def test_dead_letters_start_at_the_claim_in_which_they_were_configured(kafka: ScriptedKafka, tmp_path: Path) -> None:
    """a record refused --- claim with dead letters --- a record refused --- claim: the second is published, once"""
    refuse(claimant(tmp_path, kafka).claim(), kafka)
    claimed = claimant(tmp_path, kafka, dead_letters="dead").claim()
    assert (claimed.meta.dead_letters, claimed.meta.dead_letters_from) == ("dead", claimed.meta.batch)
    assert (claimed.meta.published_from, outputs(kafka)) == (0, [])
    refuse(claimed, kafka)
    again = claimant(tmp_path, kafka, dead_letters="dead").claim()
    assert (again.meta.dead_letters_from, outputs(kafka)) == (claimed.meta.batch, ["dead"])


@pytest.mark.parametrize("after", [{}, {"dead_letters": "other"}, {"output": "dead"}, {"output": None}])
def test_dead_letters_committed_for_a_former_topic_are_published_there_first(
    kafka: ScriptedKafka, tmp_path: Path, after: dict[str, Any]
) -> None:
    refuse(claimant(tmp_path, kafka, dead_letters="dead").claim(), kafka)
    claimed = claimant(tmp_path, kafka, **after).claim()
    assert outputs(kafka) == ["dead"]
    assert claimed.meta.dead_letters == after.get("dead_letters")


def test_dead_letters_are_published_without_an_output(kafka: ScriptedKafka, tmp_path: Path) -> None:
    only = {"output": None, "dead_letters": "dead"}
    refuse(claimant(tmp_path, kafka, **only).claim(), kafka)
    claimed = claimant(tmp_path, kafka, **only).claim()
    assert outputs(kafka) == ["dead"]
    assert claimed.publication is not None


def test_output_committed_for_a_former_topic_is_published_there_first(kafka: ScriptedKafka, tmp_path: Path) -> None:
    first = claimant(tmp_path, kafka).claim()
    kafka.marks[0] = (0, f"tidegate/1 {first.log.table_id} {first.meta.batch}")
    emit(first)
    claimed = claimant(tmp_path, kafka, output="elsewhere").claim()
    assert outputs(kafka) == ["out"]
    assert set(claimed.meta.topics) == {"in", "elsewhere"}
    assert claimed.meta.published_from == claimed.meta.batch
