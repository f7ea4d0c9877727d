"""The driver's checks of its topics before a claim and with every batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import ConfigurationError, StateError, UserError
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.stream_stream_join import StreamStreamJoinConfig
from tidegate.operators.stream_table_join import StreamTableJoinConfig
from tidegate.operators.suppression import SuppressionConfig
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.next_metadata import first_meta
from tidegate.runtime.batch_loop.preflight import (
    Topics,
    check_equal_partitions,
    check_functions,
    check_topics,
    find_topics,
    topics_in,
)

pytestmark = pytest.mark.fast

CONFIG = read(
    SuppressionConfig, {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "30s"}}
)
BEFORE = replace(first_meta("op", "t", 0, {"in": {0: 0, 1: 0}}), topics={"in": "id of in", "out": "id of out"})


def check(**topics: tuple[str, int]) -> None:
    kafka = ScriptedKafka()
    kafka.topics.update(topics)
    check_topics(BEFORE, CONFIG, find_topics(kafka, CONFIG, BEFORE.topics))  # type: ignore[arg-type]


def test_unchanged_topics_are_accepted() -> None:
    check()
    check(out=("id of out", 5))


@pytest.mark.parametrize("topic", ["in", "out"])
def test_a_re_created_topic_stops_the_operator(topic: str) -> None:
    with pytest.raises(StateError, match="deleted and created again") as stopped:
        check(**{topic: ("another", 2)})
    assert stopped.value.value == f"topic id another, was id of {topic}"


def test_an_output_with_fewer_partitions_is_refused() -> None:
    with pytest.raises(UserError, match="fewer partitions") as refused:
        check(out=("id of out", 1))
    assert "at least 2 partitions" in refused.value.remedy


@pytest.mark.parametrize("partitions", [3, 5])
def test_a_topic_whose_partitions_keys_decide_has_as_many_as_configured(partitions: int) -> None:
    kafka = ScriptedKafka()
    steps = [{"filter": "key = 'a'::BLOB"}, {"to": "out", "partitions": 4}]
    config = read(PipelineConfig, {"kind": "pipeline", "input": "in", "steps": steps})
    kafka.topics["out"] = ("id of out", 4)
    check_topics(BEFORE, config, find_topics(kafka, config, BEFORE.topics))  # type: ignore[arg-type]
    kafka.topics["out"] = ("id of out", partitions)
    with pytest.raises(UserError, match="has another number of partitions") as refused:
        check_topics(BEFORE, config, find_topics(kafka, config, BEFORE.topics))  # type: ignore[arg-type]
    assert refused.value.value == f"out: {partitions}, configured: 4"
    assert refused.value.remedy == f"create out with 4 partitions, or write partitions: {partitions}"
    with pytest.raises(UserError, match="topic out does not exist") as missing:
        topics_in({"in": kafka.topic("in")}, config, {})
    assert missing.value.remedy == "tidegate topics create out --partitions 4"


def test_by_keys_a_topic_may_have_fewer_partitions_than_the_input() -> None:
    kafka = ScriptedKafka()
    config = read(
        PipelineConfig, {"kind": "pipeline", "input": "in", "output": "out", "output_partitions": 1, "steps": []}
    )
    kafka.topics["out"] = ("id of out", 1)
    check_topics(BEFORE, config, find_topics(kafka, config, BEFORE.topics))  # type: ignore[arg-type]


def test_a_topic_of_dead_letters_with_fewer_partitions_is_refused() -> None:
    kafka, config = ScriptedKafka(), CONFIG.model_copy(update={"dead_letters": "dead"})
    kafka.topics["dead"] = ("id of dead", 1)
    with pytest.raises(UserError, match="dead-letters topic has fewer partitions") as refused:
        check_topics(BEFORE, config, find_topics(kafka, config, BEFORE.topics))  # type: ignore[arg-type]
    assert "give dead at least 2 partitions" in refused.value.remedy


@pytest.mark.parametrize("topic", ["in", "out"])
def test_dead_letters_need_a_separate_topic(topic: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(SuppressionConfig, {**CONFIG.model_dump(exclude_defaults=True), "until": None, "dead_letters": topic})
    assert "name another topic" in str(refused.value)


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_input_with_a_different_number_of_partitions_stops_the_operator(partitions: int) -> None:
    with pytest.raises(StateError, match="a different number of partitions"):
        check(**{"in": ("id of in", partitions)}, out=("id of out", 9))


_JOIN = {"right": "more", "join": "inner", "before": "0ms", "after": "1ms", "grace": "1ms"}


@pytest.mark.parametrize(
    "config",
    [
        read(StreamStreamJoinConfig, {"input": "in", **_JOIN}),
        read(SuppressionConfig, {"input": ["in", "more"], "until": {"time_limit": "1s"}}),
    ],
)
def test_input_topics_have_the_same_number_of_partitions(config: OperatorConfig) -> None:
    topics = Topics(ids={"in": "a", "more": "b"}, partitions={"in": 2, "more": 3})
    with pytest.raises(UserError, match="different numbers of partitions") as refused:
        check_equal_partitions(config, topics)
    assert refused.value.value == "in: 2, more: 3"


@pytest.mark.parametrize(
    "text, why",
    [(None, "No module named"), ("", "no attribute"), ("1 / 0", "division by zero"), ("def", "SyntaxError")],
)
def test_a_function_that_cannot_be_loaded_is_refused_whatever_its_module_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = f"joiners_{why.split()[0].lower()}"
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    raw = {"kind": "stream_table_join", "input": "in", "table": "t", "join": "left"}
    check_functions(read(StreamTableJoinConfig, raw))
    with pytest.raises(UserError, match=why):
        check_functions(read(StreamTableJoinConfig, raw | {"joiner": f"{module}:glued"}))
    step = {"name": "joined", "kind": "stream_table_join", "table": "t", "join": "left", "joiner": f"{module}:glued"}
    with pytest.raises(UserError, match=why):
        check_functions(read(PipelineConfig, {"kind": "pipeline", "input": "in", "steps": [step]}))


def test_whatever_goes_wrong_when_an_operator_is_made_names_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(config: object) -> None:
        raise ZeroDivisionError("while it is made")

    monkeypatch.setattr(preflight, "operator_for", broken)
    with pytest.raises(UserError, match="a function of stream_table_join cannot be loaded: ZeroDivisionError"):
        check_functions(
            read(StreamTableJoinConfig, {"kind": "stream_table_join", "input": "in", "table": "t", "join": "left"})
        )
