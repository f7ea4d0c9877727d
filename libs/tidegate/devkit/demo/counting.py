"""The demo's windows: hourly departures per carrier and airport, and hopping hours per airport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from tidegate.devkit.demo.expected.counts import Counted, Record

LOW = 3
_LOW_RESULTS = f"FROM departures_per_hour_emissions WHERE CAST(value AS INT) < {LOW}"

LATE = (
    "Which departures came too late to be counted? Their hour was closed 2 h after its end.",
    """SELECT count(*) AS departures,
       round(min(lateness) / 3600000, 1) AS hours_late_at_least,
       round(max(lateness) / 3600000, 1) AS at_most
FROM departures_per_hour_late""",
)

Windows = Counter[tuple[bytes, int, int, bool]]
"""Key, start, count and finality of each window."""


class Seen(NamedTuple):
    """The windows and the late records of an operator."""

    windows: Windows
    late: Counter[Record]


def seen(spark: Any, operator: str) -> Seen:
    """Return what the views of the operator show."""
    windows = _rows(spark, f"SELECT key, unix_millis(window_start), CAST(value AS INT), final FROM {operator}_windows")
    late = _rows(spark, f"SELECT key, value, timestamp FROM {operator}_late")
    return Seen(
        Counter((key.encode(), start, count, final) for key, start, count, final in windows),
        Counter((key.encode(), value.encode(), timestamp) for key, value, timestamp in late),
    )


def low_counts(spark: Any) -> Windows:
    """Return the final results that the filter selects."""
    rows = _rows(spark, f"SELECT key, unix_millis(window_start), CAST(value AS INT) {_LOW_RESULTS}")
    return Counter((key.encode(), start, count, True) for key, start, count in rows)


def differences(found: Seen, wanted: Counted) -> list[str]:
    """Return the names of the parts that differ from what is expected of the operator."""
    right = {
        "windows": found.windows == _windows(wanted.windows),
        "late departures": found.late == Counter(wanted.late),
    }
    return [what for what, is_right in right.items() if not is_right]


def differences_of_results(output: Sequence[Sequence[Record]], filtered: Windows, wanted: Counted) -> list[str]:
    """Return the names of the parts that differ: the output topic, in order, and the filtered results."""
    final = wanted.windows[wanted.windows.final]
    of_partition = dict(list(final.groupby("partition")))
    expected = [_results(of_partition[number]) if number in of_partition else [] for number in range(len(output))]
    right = {
        "results in the output topic": [list(part) for part in output] == expected,
        f"results below {LOW}": filtered == _windows(final[final["count"] < LOW]),
    }
    return [what for what, is_right in right.items() if not is_right]


def show_checked(console: Console, operator: str, different: Sequence[str], wanted: Counted) -> bool:
    """Print whether the operator's counts are as expected, and return True if they are."""
    if different:
        console.print(f"[red]Wrong:[/] {operator} differs from pandas' counts: {', '.join(different)}.")
        return False
    console.print(
        f"[green]Checked:[/] all {len(wanted.windows):,} windows of {operator} and its {len(wanted.late):,} late "
        "departures equal pandas' counts."
    )
    return True


def _windows(table: pd.DataFrame) -> Windows:
    columns = (table[name].tolist() for name in ("key", "start", "count", "final"))
    return Counter(zip(*columns, strict=True))


def _results(table: pd.DataFrame) -> list[Record]:
    values = table["count"].astype(str).str.encode("ascii")
    return list(zip(table.key.tolist(), values.tolist(), table.newest.tolist(), strict=True))


def _rows(spark: Any, query: str) -> list[tuple[Any, ...]]:
    columns = spark.sql(query).toArrow().columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
