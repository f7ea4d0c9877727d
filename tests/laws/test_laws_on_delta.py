"""Laws 3 to 5 once more, with a real Delta table as the operator log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hypothesis_profile import on_delta
from tests.lakes import lake_at
from tests.laws import test_laws as laws
from tests.laws.test_laws import case  # noqa: F401 -- the fixture of the same parameters
from tests.metadata import small_meta
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.operator import Operator, StepResult
from tidegate.operators.testing.cases import Case
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.compaction import Kept, compact

OPERATOR = "law"


class DeltaLog:
    """A LogUnderTest over an operator log in a folder."""

    def __init__(self, operator: Operator, path: Path) -> None:
        self._slot = operator.slot
        self._log = OperatorLog.open(lake_at(path), OPERATOR, log_schema(operator.columns), create=True)
        self._batches: list[int] = []
        self._compacted = -1
        self._meta = small_meta(operator=OPERATOR, table_id=self._log.table_id, batch=-1, attempt="", config="")

    def commit(self, result: StepResult) -> None:
        """The batch is in the log."""
        meta = self._next("batch")
        naming = Naming(self._log.format, meta.batch, meta.attempt, 0)
        files = write_rows(self._log.lake, naming, [Rows("state", 0, result.changes)], topic="in")
        self._log.commit(meta, files)
        self._batches.append(meta.batch)

    def compact(self) -> None:
        """A snapshot stands in the place of all state rows so far."""
        meta = self._next("compaction")
        compact(self._log, meta, Kept(slot=self._slot), rewind_window_ms=0)
        self._compacted = meta.batch

    def rows(self) -> pa.Table:
        """The newest snapshot and the changes after it."""
        return self._log.read("state", 0)

    def tail(self, batch: int) -> pa.Table | None:
        """The changes after that batch; None where a later compaction has replaced them."""
        after = self._batches[batch]
        return None if after < self._compacted else self._log.read("state", 0, after)

    def _next(self, action: str) -> BatchMeta:
        self._meta = replace(self._meta, batch=self._meta.batch + 1, attempt=uuid4().hex, action=action)
        return self._meta


@pytest.fixture
def make_log(tmp_path: Path) -> Callable[[Operator], DeltaLog]:
    """A new operator log in a folder of its own."""
    return lambda operator: DeltaLog(operator, Path(mkdtemp(dir=tmp_path)) / "log")


def body(law: Any) -> Any:
    """The law itself, without the number of examples that the fast suite gives it."""
    return law.hypothesis.inner_test


examples = settings(on_delta, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@examples
@given(data=st.data())
def test_law_3_a_restart_at_any_batch_changes_nothing_that_follows(
    case: Case,  # noqa: F811
    make_log: Callable[[Operator], DeltaLog],
    data: st.DataObject,
) -> None:
    body(laws.test_law_3_a_restart_at_any_batch_changes_nothing_that_follows)(case=case, make_log=make_log, data=data)


@examples
@given(data=st.data())
def test_law_4_the_changelog_restores_the_same_state(
    case: Case,  # noqa: F811
    make_log: Callable[[Operator], DeltaLog],
    data: st.DataObject,
) -> None:
    body(laws.test_law_4_the_changelog_restores_the_same_state)(case=case, make_log=make_log, data=data)


@examples
@given(data=st.data())
def test_law_5_compaction_at_any_point_changes_nothing_that_follows(
    case: Case,  # noqa: F811
    make_log: Callable[[Operator], DeltaLog],
    data: st.DataObject,
) -> None:
    body(laws.test_law_5_compaction_at_any_point_changes_nothing_that_follows)(case=case, make_log=make_log, data=data)
