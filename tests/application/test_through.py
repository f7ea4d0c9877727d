"""`select_key(...).through(...)`: two operators joined by a topic, their names, and what is said of mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.application.programs import application
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.pipeline.config import PipelineConfig

pytestmark = pytest.mark.fast

FIELDS = {"customer": "string", "amount": "int64"}


def orders(app: tg.Application, **options: Any) -> tg.Stream:
    return app.stream("orders", name="orders", value=tg.json(FIELDS), **options)


def counted(app: tg.Application, **options: Any) -> tg.Application:
    by_customer = orders(app, **options).select_key("customer").through("by-customer", partitions=4)
    by_customer.window(tg.tumbling("1h", grace="5m")).count().filter("key <> 'x'").to("counts")
    return app


def written(app: tg.Application) -> dict[str, Any]:
    return {name: each.as_yaml() for name, each in app._definitions.operators.items()}


def test_what_is_before_the_topic_and_what_reads_it_are_two_operators() -> None:
    before, behind = written(counted(application())).values()
    assert (before["steps"], before["output"], before["output_partitions"]) == (
        [{"select_key": "customer"}],
        "by-customer",
        4,
    )
    assert (behind["input"], behind["output"]) == ("by-customer", "counts")
    in_a_file = {**before, "steps": [*before["steps"], {"to": "by-customer", "partitions": 4}]}
    del in_a_file["output"], in_a_file["output_partitions"]
    assert read(PipelineConfig, in_a_file) == read(PipelineConfig, before)
    assert "key" not in behind
    assert "value" not in behind


def test_the_operator_behind_is_named_after_the_one_before_and_the_topic() -> None:
    assert list(written(counted(application()))) == ["orders", "orders_by_customer"]
    app = application()
    orders(app).select_key("customer").through("Shop.by-customer", partitions=4).to("copy")
    orders(app).select_key("amount").through("by-amount", partitions=4, name="amounts").to("amounts")
    assert list(written(app)) == ["orders", "orders_shop_by_customer", "amounts"]


def test_a_program_with_two_branches_and_a_file_are_one_model() -> None:
    app = counted(application())
    orders(app).to("copy")
    before, _ = written(app).values()
    assert before["steps"][1:] == [{"to": "by-customer", "partitions": 4}, {"from": "input", "to": "copy"}]
    assert tg.Application.from_yaml(app.to_yaml()) == app


def test_a_branch_without_a_name_is_not_called_like_another_step() -> None:
    app = application()
    stream = orders(app)
    large, small = stream.filter("amount > 1"), stream.filter("amount < 1").named("filter_1")
    large.to("large")
    small.to("small")
    large.select(n="amount").merge(small.select(n="amount")).to("both")
    app.check()
    [only] = written(app).values()
    assert {step["name"] for step in only["steps"] if "filter" in step} == {"filter_1_", "filter_1"}


def test_a_stream_goes_through_several_topics() -> None:
    app = application()
    by_customer = orders(app).select_key("customer").through("by-customer", partitions=4)
    counts = by_customer.window(tg.tumbling("1h", grace="5m")).count()
    counts.select_key(tg.col("count")).through("by-count", partitions=2).suppress(tg.window_close(grace="1h")).keep()
    configuration = app.configuration()
    behind: Any = configuration.operators["orders_by_customer_by_count"]
    assert (behind.key, behind.windows) == ("int64", "headers")
    assert tg.Application.from_yaml(app.to_yaml()) == app


def test_what_was_said_of_dead_letters_and_time_counts_behind_the_topic_too() -> None:
    app = counted(application(), dead_letters="refused", idle_after="1m", rewind_window="1d", time="records")
    _, behind = written(app).values()
    names = ("dead_letters", "idle_after", "rewind_window", "time")
    assert [behind[name] for name in names] == ["refused", "1m", "1d", "records"]


def test_rows_with_another_key_are_written_in_a_format() -> None:
    app = application()
    orders(app).select(amount="amount").select_key("amount").to("amounts", partitions=3, value=tg.int64())
    [only] = written(app).values()
    assert only["steps"][-1] == {"encode": "int64"}
    app.check()


PROBLEMS: dict[str, Callable[[tg.Stream], object]] = {
    "the stream has no output": lambda stream: stream.select_key("customer").through("t", partitions=4),
    "no column nope": lambda stream: stream.select_key("nope").through("t", partitions=4).to("x"),
    "too small": lambda stream: stream.select_key("customer").through("t", partitions=0).to("x"),
    "the name is too long": lambda stream: stream.select_key("customer").through("t" * 70, partitions=4).to("x"),
    "it is also the input": lambda stream: stream.select_key("customer").through("orders", partitions=4).to("x"),
    "convert it": lambda stream: stream.select_key("amount > 1").to("x", partitions=4),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_mistake_is_a_problem_with_its_line(problem: str) -> None:
    app = application()
    PROBLEMS[problem](orders(app))
    with pytest.raises(ConfigurationError) as refused:
        app.check()
    assert all(Path(__file__).name in each.where and each.remedy for each in refused.value.problems)
    assert problem in str(refused.value)


@pytest.mark.parametrize("method", ["window", "deduplicate", "join", "suppress", "filter", "keep"])
def test_rows_with_another_key_have_no_method_that_needs_them_together(method: str) -> None:
    with pytest.raises(AttributeError, match=r"partitions=NUMBER"):
        getattr(orders(application()).select_key("customer"), method)
