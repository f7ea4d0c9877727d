"""The demo's windows: hourly departures per carrier and airport, and hopping hours per airport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from tidegate.devkit.charts import Line, line_chart
from tidegate.devkit.demo.expected_counts import Counted, Record

LOW = 3
_LOW_RESULTS = f"FROM departures_per_hour_emissions WHERE CAST(value AS INT) < {LOW}"

QUESTIONS = (
    (
        f"Which carriers and airports had fewer than {LOW} departures in an hour most often? (final results alone)",
        f"SELECT key, count(*) AS hours {_LOW_RESULTS} GROUP BY key ORDER BY hours DESC LIMIT 5",
    ),
    (
        "Which departures came too late to be counted? (their hour was closed 2 h after its end)",
        "SELECT count(*) AS departures, round(min(lateness) / 3600000, 1) AS hours_late_at_least, "
        "round(max(lateness) / 3600000, 1) AS at_most FROM departures_per_hour_late",
    ),
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


def show_checked(console: Console, different: Sequence[str], hours: Counted, any_hours: Counted) -> bool:
    """Print whether the counts are as expected, and return True if they are."""
    if different:
        console.print(f"[red]Wrong:[/] these differ from pandas' counts: {', '.join(different)}.")
        return False
    final = hours.windows[hours.windows.final]
    console.print(
        f"[green]Checked:[/] all {len(final):,} final counts in the output topic and their order, the "
        f"{int((final['count'] < LOW).sum()):,} below {LOW}, the {len(hours.late):,} late departures, and "
        f"{len(any_hours.windows):,} hopping windows equal pandas' counts."
    )
    return True


_MIDNIGHTS = pd.date_range("2013-02-07", "2013-02-11", tz="America/New_York")
_DRAWN = "hopping windows of 1 h at New York's airports, by their start in local time"


def draw(spark: Any, operator: str, advance_ms: int, picture: Path) -> None:
    """Draw the departures of each airport in hopping windows during the blizzard into the file."""
    places = [_ms(day) for day in _MIDNIGHTS]
    counts = _counts(spark, operator, places[0], places[-1])
    every = counts.unstack("airport").reindex(range(places[0], places[-1], advance_ms)).fillna(0)
    lines = [Line(airport, tuple(every[airport].items())) for airport in every.columns]
    marks = [(place, f"{day:%-d %B}") for place, day in zip(places, _MIDNIGHTS, strict=True)]
    title = "Departures in an hour, every 10 minutes, in the blizzard of 8 and 9 February 2013"
    picture.write_text(line_chart(title, _DRAWN, lines, marks))


def _counts(spark: Any, operator: str, first: int, last: int) -> pd.Series:
    """Return the counts of windows that start in [first, last), by start and airport."""
    start = "unix_millis(window_start)"
    where = f"FROM {operator}_windows WHERE {start} >= {first} AND {start} < {last}"
    rows = _rows(spark, f"SELECT {start}, key, CAST(value AS INT) {where}")
    return pd.DataFrame(rows, columns=["start", "airport", "count"]).set_index(["start", "airport"])["count"]


def _ms(time: pd.Timestamp) -> int:
    return int(time.timestamp() * 1_000)


def _windows(table: pd.DataFrame) -> Windows:
    columns = (table[name].tolist() for name in ("key", "start", "count", "final"))
    return Counter(zip(*columns, strict=True))


def _results(table: pd.DataFrame) -> list[Record]:
    values = table["count"].astype(str).str.encode("ascii")
    return list(zip(table.key.tolist(), values.tolist(), table.newest.tolist(), strict=True))


def _rows(spark: Any, query: str) -> list[tuple[Any, ...]]:
    columns = spark.sql(query).toArrow().columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
