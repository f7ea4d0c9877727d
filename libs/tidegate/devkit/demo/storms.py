"""The demo's pipeline: hours of late departures in strong wind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
from rich.console import Console

from tidegate.devkit.demo.expected.storms import Storms

Record = tuple[bytes | None, bytes | None, int]

WORST = (
    "In which hours did strong wind delay the most departures?",
    """SELECT key AS airport,
       date_format(timestamp_millis(window_start), 'd MMM HH:mm') AS hour_utc,
       CAST(get_json_object(value, '$.n') AS INT) AS departures,
       CAST(get_json_object(value, '$.worst') AS INT) AS worst_delay_min
FROM late_storms_emissions ORDER BY departures DESC, hour_utc LIMIT 5""",
)


def seen(spark: Any, operator: str) -> Storms:
    """Return what the views of the operator show."""
    hours = spark.sql(f"SELECT key, window_start, value FROM {operator}_emissions").toArrow().to_pylist()
    late = spark.sql(f"SELECT key, timestamp FROM {operator}_late").toArrow().to_pylist()
    return Storms(
        Counter((row["key"].encode(), row["window_start"], *_numbers(row["value"])) for row in hours),
        Counter((row["key"].encode(), row["timestamp"]) for row in late),
    )


def differences(found: Storms, output: Sequence[Sequence[Record]], wanted: Storms) -> list[str]:
    """Return the names of the parts that differ: the hours, those in the output topic, and the late departures."""
    written = Counter((key, *_numbers(value)) for part in output for key, value, _ in part)
    expected = Counter((key, count, worst) for key, _, count, worst in wanted.hours.elements())
    right = {
        "hours": found.hours == wanted.hours,
        "results in the output topic": written == expected,
        "late departures": found.late == wanted.late,
    }
    return [what for what, is_right in right.items() if not is_right]


def show_checked(console: Console, different: Sequence[str], wanted: Storms) -> bool:
    """Print whether the stormy hours are as expected, and return True if they are."""
    if different:
        console.print(f"[red]Wrong:[/] the stormy hours differ from pandas': {', '.join(different)}.")
        return False
    console.print(
        f"[green]Checked:[/] all {wanted.hours.total():,} stormy hours and the {wanted.late.total():,} departures that "
        "came too late for them equal pandas' join and counts."
    )
    return True


def _numbers(value: str | bytes | None) -> tuple[int, int]:
    found = orjson.loads(value or b"null")
    return found["n"], found["worst"]
