"""An operator of several topics does what its reference does with their records in the order of the merge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.runtime.task.test_merging import CLOCK_MS, Topic, by_the_rule, in_pieces, origins, topics
from tidegate.contracts.records import Row
from tidegate.operators.registry import kind_of, operator_for
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import Case, cases
from tidegate.operators.testing.laws import Partition, Table, Trace

pytestmark = pytest.mark.fast

MERGING = {name: case for name, case in cases().items() if kind_of(case.holding.kind).rules.streams == 1}
"""The cases of the kinds that may merge topics."""


@pytest.fixture(scope="module", params=MERGING)
def case(request: pytest.FixtureRequest) -> Case:
    """What is to be known of the operator."""
    return MERGING[request.param]


@st.composite
def examples(draw: st.DrawFn, case: Case) -> tuple[Any, list[Table]]:
    """A configuration, and the tables that the operator reads before any record comes."""
    config = draw(case.configs)
    history = strategies.readable(draw(case.histories), config)
    return config, [event for event in history if isinstance(event, Table)]


def played(
    config: Any, tables: list[Table], inputs: list[Topic], sizes: st.DataObject | None
) -> tuple[Trace, list[int]]:
    """What the operator makes of the topics, batch by batch, and the numbers of their records."""
    partition, numbers = Partition(operator_for(config), CLOCK_MS), list[int]()
    for table in tables:
        partition.play(table)
    for read in in_pieces(inputs, sizes, config):
        numbers += read.records.offset.tolist()
        if partition.trace.stopped_at is None and len(read.records):
            partition.play(list(read.records.rows()))
    return partition.finished(), numbers


def numbered(inputs: list[Topic], config: Any, numbers: list[int]) -> list[Row]:
    """The records in the order of the merge, with these numbers."""
    by_offset = [{row.offset: row for row in rows} for rows in inputs]
    order = by_the_rule(inputs, config)
    return [by_offset[topic][at]._replace(offset=number) for (topic, at), number in zip(order, numbers, strict=True)]


@many
@given(data=st.data(), inputs=topics())
def test_an_operator_of_several_topics_equals_its_reference_however_they_are_cut(
    case: Case, data: st.DataObject, inputs: list[Topic]
) -> None:
    config, tables = data.draw(examples(case))
    assume(config.timestamp is None)
    found, numbers = played(config, tables, inputs, data)
    assert found == case.reference(config, [*tables, *numbered(inputs, config, numbers)], CLOCK_MS)


@many
@given(data=st.data(), inputs=topics())
def test_the_order_of_what_an_operator_of_several_topics_emits_does_not_depend_on_the_cut(
    case: Case, data: st.DataObject, inputs: list[Topic]
) -> None:
    config, tables = data.draw(examples(case))
    whole, cut = (played(config, tables, inputs, sizes)[0].emissions for sizes in (None, data))
    shown = [[(row["key"], row["value"], row["timestamp"]) for row in rows] for rows in (whole, cut)]
    assert shown[0] == shown[1]


def test_topics_without_a_record_give_nothing(case: Case) -> None:
    trace, numbers = played(case.holding, [], [[], []], None)
    assert (trace, numbers, origins(in_pieces([[], []], None))) == (Trace(), [], [])
