"""The picture that the demo starts with: departures per hour in the blizzard of February 2013."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from tidegate.devkit.charts import Line, line_chart

_TITLE = "Departures in an hour, every 10 minutes, in the blizzard of 8 and 9 February 2013"
_DRAWN = "hopping windows of 1 h at New York's airports, by their start in local time"
_MIDNIGHTS = pd.date_range("2013-02-07", "2013-02-11", tz="America/New_York")
_NOONS = pd.date_range("2013-02-07 12:00", "2013-02-10 12:00", tz="America/New_York")
_HOUR_MS = 3_600_000
_LEVELS = "·▁▂▃▄▅▆▇█"
"""Nothing, then rising eighths of the largest value."""


def show(console: Console, spark: Any, operator: str, picture: Path) -> None:
    """Print the departures of each airport per hour; draw every hopping window into the file. Nothing without them."""
    counts = _counts(spark, operator, _ms(_MIDNIGHTS[0]), _ms(_MIDNIGHTS[-1]))
    if counts.empty:
        return
    hours = counts.reindex(range(_ms(_NOONS[0]), _ms(_NOONS[-1]), _HOUR_MS)).fillna(0)
    console.print("\n[bold]A blizzard closes New York's airports[/]: departures in each hour of February 2013")
    largest = int(hours.max().max())
    for airport in hours.columns:
        console.print(f"  {airport} {levels(hours[airport].tolist(), largest)}", highlight=False)
    console.print(f"      {_axis()}", highlight=False)
    console.print(f"  █ is {largest} departures; all windows: {picture}", soft_wrap=True, highlight=False)
    _draw(counts, picture)


def levels(values: Sequence[float], largest: float) -> str:
    """Return one character per value: a dot for 0, otherwise a bar as high as its share of the largest."""
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[0 if value <= 0 else max(1, round(top * value / largest))] for value in values)


def _axis() -> str:
    """Return a line with the dates at their midnights, below a line of hours that starts at noon."""
    return " " * 12 + "".join(f"|{day:%-d Feb}".ljust(24) for day in _MIDNIGHTS[1:4]).rstrip()


def _draw(counts: pd.DataFrame, picture: Path) -> None:
    places = [_ms(day) for day in _MIDNIGHTS]
    steps = counts.index.to_series().sort_values().diff().min()
    every = counts.reindex(range(places[0], places[-1], int(steps))).fillna(0)
    lines = [Line(airport, tuple(every[airport].items())) for airport in every.columns]
    marks = [(place, f"{day:%-d %B}") for place, day in zip(places, _MIDNIGHTS, strict=True)]
    picture.write_text(line_chart(_TITLE, _DRAWN, lines, marks))


def _counts(spark: Any, operator: str, first: int, last: int) -> pd.DataFrame:
    """Return the counts of windows that start in [first, last): a row for each start, a column for each airport."""
    start = "unix_millis(window_start)"
    where = f"FROM {operator}_windows WHERE {start} >= {first} AND {start} < {last}"
    rows = spark.sql(f"SELECT {start} AS start, key, CAST(value AS INT) AS count {where}").toArrow().to_pandas()
    return rows.pivot_table(index="start", columns="key", values="count", aggfunc="sum")


def _ms(time: pd.Timestamp) -> int:
    return int(time.timestamp() * 1_000)
