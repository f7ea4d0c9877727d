"""`tidegate apply` on a file in which a table and its readers change together."""

from __future__ import annotations

import pytest

from tidegate.cli.operate.apply import apply_order
from tidegate.runtime.configuration.changes import Change
from tidegate.runtime.doctor.change_preview import ChangePreview

pytestmark = pytest.mark.fast


def changed(name: str, option: str, before: str, after: str) -> ChangePreview:
    """An operator with one change."""
    return ChangePreview(name=name, status="live", changes=(Change(option=option, before=before, after=after),))


JOIN = changed("join", "grace", "1h", "2h")


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [("1h", "90m", ["weather", "join"]), ("2d", "30h", ["join", "weather"])],
    ids=["it keeps more", "it keeps less"],
)
def test_a_table_always_keeps_what_its_readers_may_look_up(before: str, after: str, order: list[str]) -> None:
    table = changed("weather", "history_retention", before, after)
    for result in ([JOIN, table], [table, JOIN]):
        assert [found.name for found in sorted(result, key=apply_order)] == order
