"""Steps that give rows another key: what the new key is, which rows are rejected, and where the rows may go."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.runtime.configuration.application import application_of, config_of, settings_of
from tidegate.runtime.configuration.changes import changes

pytestmark = pytest.mark.fast

FIELDS = {"json": {"customer": "string", "amount": "int64"}}
BY_CUSTOMER = {"select_key": "customer"}
WRITTEN = {"to": "by-customer", "partitions": 4}
FIRST = {"name": "first", "kind": "deduplicate", "within": "1h", "grace": "1h"}


def order(customer: str | None, amount: int, at: int, offset: int) -> Row:
    name = "null" if customer is None else f'"{customer}"'
    return Row(b"%d" % offset, f'{{"customer": {name}, "amount": {amount}}}'.encode(), at, offset)


ORDERS = [order("ann", 5, 30, 0), order("bob", 7, 20, 1), order(None, 1, 90, 2), order("ann", 2, 25, 3)]


def config(*steps: dict[str, Any], **options: Any) -> PipelineConfig:
    return read(
        PipelineConfig, {"kind": "pipeline", "input": "orders", "value": FIELDS, "steps": list(steps), **options}
    )


def state_of(*steps: dict[str, Any], **options: Any) -> Any:
    operator = pipeline_of(config(*steps, **options))
    return operator.open(MemoryStorage(operator.layout))


def stepped(*steps: dict[str, Any], rows: list[Row] = ORDERS, **options: Any) -> StepResult:
    found: StepResult = state_of(*steps, **options).step(Records.from_rows(rows), 0)
    return found


def keys(found: StepResult) -> list[tuple[Any, ...]]:
    return [(row["key"], row["value"], row["timestamp"]) for row in found.emissions.to_pylist()]


def refusal(*steps: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        config(*steps, **options)
    return str(refused.value)


def test_rows_have_the_new_key_and_their_value_and_time() -> None:
    found = stepped(BY_CUSTOMER, WRITTEN)
    names = {0: b"ann", 1: b"bob", 3: b"ann"}
    assert keys(found) == [(name, ORDERS[at].value, ORDERS[at].timestamp) for at, name in names.items()]


def test_a_row_whose_new_key_is_null_is_rejected_as_it_came_and_moves_no_time() -> None:
    found = stepped(BY_CUSTOMER, WRITTEN)
    [row] = found.rejected.to_pylist()
    assert [row[name] for name in ("cause", "key", "offset", "topic")] == ["its new key is null", b"2", 2, None]
    assert (found.counts.applied, found.counts.rejected, found.stream_time) == (3, 1, 30)


def test_a_row_whose_new_key_cannot_be_evaluated_or_whose_value_cannot_be_read_is_rejected() -> None:
    rows = [order("12", 1, 5, 0), order("x", 1, 6, 1), Row(b"2", b"no JSON", 7, 2)]
    found = stepped({"select_key": "CAST(customer AS bigint)"}, WRITTEN, rows=rows)
    assert [row["key"] for row in found.emissions.to_pylist()] == [(12).to_bytes(8, "big")]
    causes = found.rejected["cause"].to_pylist()
    assert causes[0] == "cannot be evaluated: CAST(customer AS bigint)"
    assert len(causes) == 2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("customer", b"ann"),
        ("amount", (5).to_bytes(8, "big")),
        ("CAST(amount AS integer)", (5).to_bytes(4, "big")),
        ("CAST(amount AS double)", bytes.fromhex("4014000000000000")),
        ("key", b"0"),
    ],
)
def test_a_key_is_written_by_the_serializer_of_its_type(key: str, expected: bytes) -> None:
    assert keys(stepped({"select_key": key}, WRITTEN, rows=ORDERS[:1]))[0][0] == expected


def test_results_of_a_step_that_holds_state_get_another_key() -> None:
    found = stepped(FIRST, BY_CUSTOMER, WRITTEN)
    assert [key for key, _, _ in keys(found)] == [b"ann", b"bob", b"ann"]
    [rejected] = found.rejected.to_pylist()
    assert (rejected["cause"], rejected["topic"]) == ("its new key is null", "step:2")


def test_results_of_windows_keep_their_windows() -> None:
    count = {"name": "n", "kind": "windowed_aggregation", "window": {"tumbling": "10ms", "grace": "9ms"}}
    found = stepped(count | {"aggregate": {"count": True}, "emit": "updates"}, {"select_key": "count"}, WRITTEN)
    shown = {(row["key"], row["window_start"], row["window_end"]) for row in found.emissions.to_pylist()}
    assert ((1).to_bytes(8, "big"), 30, 40) in shown


@given(st.lists(st.tuples(st.sampled_from(["ann", "bob", None]), st.integers(0, 50)), max_size=12), st.integers(0, 12))
def test_a_cut_anywhere_gives_the_same_rows(orders: list[tuple[str | None, int]], cut: int) -> None:
    rows = [order(customer, at, at, offset) for offset, (customer, at) in enumerate(orders)]
    steps = ({"require": "amount > 3", "reason": "small"}, BY_CUSTOMER, WRITTEN)
    whole, state = stepped(*steps, rows=rows), state_of(*steps)
    parts = [state.step(Records.from_rows(part), 0) for part in (rows[:cut], rows[cut:])]
    for table in ("emissions", "rejected"):
        columns = ["source", "key", "value", "timestamp", "cause"]
        found = [row for part in parts for row in getattr(part, table).select(columns).to_pylist()]
        due = getattr(whole, table).select(columns).to_pylist()  # of rejected rows, those of one step after another
        assert sorted(found, key=itemgetter("source")) == sorted(due, key=itemgetter("source"))
    assert parts[-1].stream_time == whole.stream_time


def test_a_step_that_holds_state_does_not_read_rows_with_another_key() -> None:
    told = refusal(BY_CUSTOMER, FIRST)
    assert "steps.1: a step before it has given rows another key" in told
    assert "{to: TOPIC, partitions: NUMBER}" in told


def test_a_topic_of_rows_with_another_key_has_a_number_of_partitions() -> None:
    assert "steps.1: a step before it has given rows another key" in refusal(
        BY_CUSTOMER, {"to": "by-customer"}, {"filter": "amount > 3"}
    )
    assert "output_partitions: a step before it" in refusal(BY_CUSTOMER, output="by-customer")
    assert "output_partitions: there is no output topic" in refusal(BY_CUSTOMER, output_partitions=4)
    [output] = config(BY_CUSTOMER, output="by-customer", output_partitions=4).outputs()
    assert (output.topic, output.partitions) == ("by-customer", 4)


def test_rows_with_another_key_are_not_merged_with_others() -> None:
    named = BY_CUSTOMER | {"name": "by_customer"}
    others = {"name": "others", "from": "input", "filter": "amount > 3"}
    assert "have keys of different types" in refusal(named, others, {"from": ["by_customer", "others"], **WRITTEN})
    both = refusal(named, others, {"from": ["by_customer", "others"], **WRITTEN}, key="string")
    assert "have another key than the input on one side alone" in both


@pytest.mark.parametrize(
    ("key", "problem"),
    [("amount > 3", "for which Kafka has no serializer"), ("nothing", "no column nothing"), ("", "select_key")],
)
def test_a_key_that_cannot_be_written_is_a_problem(key: str, problem: str) -> None:
    assert problem in refusal({"select_key": key}, WRITTEN)


def test_keys_whose_bytes_name_their_windows_keep_them() -> None:
    told = refusal({"select_key": "amount"}, WRITTEN, windows="session")
    assert "the bytes of the input's keys name their windows" in told


def application(**reader: Any) -> dict[str, Any]:
    """The operators of a file in which one reads by customer what another one writes."""
    writer = {"kind": "pipeline", "input": "orders", "value": FIELDS, "steps": [BY_CUSTOMER, WRITTEN]}
    raw: dict[str, Any] = {
        "application": "a",
        "lake": "lake",
        "keep_output": "1d",
        "kafka": {"bootstrap.servers": "x:1"},
    }
    raw["operators"] = {"orders": writer, "behind": {"input": "by-customer", **reader}}
    return {**application_of(raw).operators}


def test_the_reader_of_the_topic_knows_its_keys_and_values() -> None:
    behind = application(kind="pipeline", steps=[{"filter": "amount > 3 AND key = customer"}])["behind"]
    assert (behind.key, behind.key_format, behind.value.names) == ("string", "string", ["customer", "amount"])
    assert config_of(settings_of(behind)) == behind
    assert application(kind="suppression", until={"time_limit": "1s"})["behind"].key_format == "string"


def test_views_show_the_new_keys() -> None:
    assert config(BY_CUSTOMER, WRITTEN).shown().key_format == "string"
    assert config(BY_CUSTOMER | {"name": "by"}, WRITTEN).shown("by").key_format == "string"
    assert config(FIRST, BY_CUSTOMER, WRITTEN, key="int64").shown("first").key_format == "int64"
    both = config({"to": "all"}, BY_CUSTOMER, WRITTEN, key="int64")
    assert both.shown().key_format == "bytes"


def test_the_number_of_partitions_may_change_while_records_are_held() -> None:
    before = config(FIRST, BY_CUSTOMER, output="by-customer", output_partitions=4)
    after = config(FIRST, BY_CUSTOMER, output="by-customer", output_partitions=8)
    [change] = changes(before, after)
    assert (change.option, change.before, change.after, change.refused) == ("output_partitions", 4, 8, None)
