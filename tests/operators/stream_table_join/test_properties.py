"""A join under changing clocks, tables, graces and restarts equals the reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.operators.stream_table_join.partitions import config, table_of
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin
from tidegate.operators.stream_table_join.reference import Reference
from tidegate.operators.table_history.reference import Reference as TableReference
from tidegate.operators.table_history.state import TableHistoryState
from tidegate.operators.testing.laws import small

pytestmark = pytest.mark.fast

KEYS = st.sampled_from(["a", "b", None])
LINES = st.lists(st.tuples(KEYS, st.sampled_from(["0", "1", None]), st.integers(0, 30)), max_size=6)
GRACES = st.integers(1, 12).map(lambda ms: {"grace": f"{ms}ms"})
WAITS = st.none() | st.integers(0, 9).map(lambda ms: f"{ms}ms")
RULES = st.builds(
    lambda grace, wait, join: grace | {"wait_for_table": wait, "join": join, "before_history": "join"},
    GRACES,
    WAITS,
    st.sampled_from(["inner", "left"]),
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "table", "restart", "advance", "flush"]), LINES, RULES, st.integers(0, 8)
    ),
    max_size=12,
)


class Pair:
    """A join and its reference, which live through the same."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self.clock_ms = 0
        self.offset, self.open_until = 0, ALWAYS
        self.accepted: list[int] = []
        self.left: list[int] = []
        self.storage = MemoryStorage(small(StreamTableJoin.layout))
        self.table: TableHistoryState = table_of()
        self.reference = Reference(config(**rules), TableReference(self.table._config))
        self.open(rules)

    def open(self, rules: dict[str, Any]) -> None:
        """Both go on under those rules."""
        self.state = StreamTableJoin(config(**rules)).open(self.storage)
        self.state.read_table(self.table, self.open_until)
        self.reference.config = config(**rules)

    def read(self, lines: list[Any], open_until: int) -> None:
        """The table has those records, and is complete up to that time."""
        self.table = table_of(*lines)
        self.reference.table = TableReference(self.table._config)
        for row in rows_of(lines, 0):
            self.reference.table.process(row, 0)
        self.open_until = self.reference.open_until = open_until
        self.state.read_table(self.table, open_until)

    def batch(self, lines: list[Any]) -> StepResult:
        """Both have taken the records, in a batch of the present clock."""
        rows = rows_of(lines, self.offset)
        self.offset += len(rows)
        self.reference.release(self.clock_ms)
        for row in rows:
            self.reference.process(row, self.clock_ms)
        result = self.state.step(Records.from_rows(rows), self.clock_ms)
        refused = set(result.rejected["offset"].to_pylist())
        self.accepted += [row.offset for row in rows if row.offset not in refused]
        return result

    def play(self, what: str, lines: list[Any], rules: dict[str, Any], by_ms: int) -> None:
        """The turn has had its effect on both, which agree."""
        self.clock_ms += by_ms
        if what == "restart":
            self.open(rules)
        elif what == "table":
            self.read(lines, 4 * by_ms)
        self.reference.emissions.clear()
        if what == "advance":
            self.reference.advance(self.state.stream_time + by_ms)
            result = self.state.advance(self.state.stream_time + by_ms)
        elif what == "flush":
            self.reference.flush()
            result = self.state.flush()
        else:
            result = self.batch(lines if what == "batch" else [])
        self.agree(result)

    def agree(self, result: StepResult) -> None:
        """The result is what the reference has noted since it was last cleared."""
        found = [(row["offset"], row["valid_from"], row["cause"]) for row in result.emissions.to_pylist()]
        self.left += [offset for offset, _, _ in found]
        assert found == [(row.offset, met and met.timestamp, cause) for row, _, met, cause in self.reference.emissions]
        held = [(row["offset"], row["arrived"]) for row in self.state.snapshot().to_pylist()]
        assert held == [(held.row.offset, held.arrived) for held in self.reference.held]
        assert result.stream_time == self.reference.stream_time


def rows_of(lines: list[Any], first: int) -> list[Row]:
    """The records of the lines."""
    encoded = ((key and key.encode(), value and value.encode(), at) for key, value, at in lines)
    return [Row(*line, first + at) for at, line in enumerate(encoded)]


@many
@given(rules=RULES, turns=TURNS)
def test_clocks_tables_graces_and_restarts_have_only_the_effects_that_the_reference_predicts(
    rules: dict[str, Any], turns: list[Any]
) -> None:
    pair = Pair(rules)
    for turn in turns:
        pair.play(*turn)


@many
@given(rules=RULES, turns=TURNS)
def test_every_accepted_record_of_a_left_join_is_emitted_exactly_once(rules: dict[str, Any], turns: list[Any]) -> None:
    pair = Pair(rules | {"join": "left"})
    for what, lines, others, by_ms in turns:
        pair.play(what, lines, others | {"join": "left"}, by_ms)
    pair.play("flush", [], rules, 0)
    assert sorted(pair.left) == pair.accepted
