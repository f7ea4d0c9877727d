"""The demo's join: each departure with the weather at its airport as of the scheduled departure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from rich.console import Console
from rich.table import Table

from tidegate.devkit.charts import Bar, bar_chart
from tidegate.devkit.demo.departures import PARTITIONS, Departure, partition_of
from tidegate.devkit.demo.expected.readings import NOTHING
from tidegate.devkit.demo.weather import Reading

Wanted = npt.NDArray[np.int64]
Record = tuple[bytes | None, bytes | None, int]

VISIBILITY = (
    "Are departures later when one sees less?",
    """SELECT CASE WHEN miles < 1 THEN 'under 1 mile'
            WHEN miles < 5 THEN '1 to 5 miles'
            ELSE '5 and more' END AS visibility,
       count(*) AS departures, round(avg(delay), 1) AS average_delay_min
FROM (SELECT CAST(get_json_object(value, '$.table.visib') AS DOUBLE) AS miles,
             get_json_object(value, '$.stream.delay_min') AS delay
      FROM flights_with_weather_emissions)
GROUP BY 1 ORDER BY 3 DESC""",
)
STORM = (
    "What was the weather when the storm of 8 March began?",
    """SELECT key AS airport, date_format(valid_from, 'd MMM HH:mm') AS read_at_utc,
       get_json_object(value, '$.visib') AS visibility_miles,
       get_json_object(value, '$.wind_speed') AS wind_mph
FROM weather_as_of('2013-03-08 12:30') ORDER BY key""",
)


class Compared(NamedTuple):
    """How many joined and waiting departures were compared, and whether all are right."""

    joined: int
    waiting: int
    right: bool


def compared(
    output: Sequence[Sequence[Record]],
    held: Counter[Record],
    stream: Sequence[Departure],
    readings: Sequence[Reading],
    wanted: Wanted,
    grace_ms: int,
) -> Compared:
    """Check that each emitted departure was joined to the right reading and that the others are still held."""
    waiting: Counter[Record] = Counter()
    right = True
    for partition, numbers in enumerate(_by_partition(stream)):
        released = max((stream[number].timestamp for number in numbers), default=0) - grace_ms
        out = [number for number in numbers if stream[number].timestamp <= released]
        waiting.update(_waiting(stream[number]) for number in numbers if stream[number].timestamp > released)
        expected = Counter(_joined(stream[number], readings, int(wanted[number])) for number in out)
        right &= expected == Counter((key, _canonical(value), at) for key, value, at in output[partition])
    return Compared(sum(map(len, output)), held.total(), right and held == waiting)


def show_compared(console: Console, found: Compared) -> bool:
    """Print whether the join is as expected, and return True if it is."""
    if found.right:
        console.print(
            f"[green]Checked:[/] all {found.joined:,} joined departures in the output topic, and the {found.waiting} "
            "that still wait, equal pandas' as-of join."
        )
    else:
        console.print("[red]Wrong:[/] the joined or the waiting departures differ from pandas' as-of join.")
    return found.right


def _by_partition(stream: Sequence[Departure]) -> list[list[int]]:
    """Return the numbers of each partition's departures."""
    parts: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for number, departure in enumerate(stream):
        parts[partition_of(departure.airport)].append(number)
    return parts


def _joined(departure: Departure, readings: Sequence[Reading], number: int) -> Record:
    reading = b"null" if number == NOTHING else readings[number].value
    value = _canonical(b'{"stream":%b,"table":%b}' % (departure.value, reading))
    return departure.airport, value, departure.timestamp


def _waiting(departure: Departure) -> Record:
    return departure.airport, departure.value, departure.timestamp


def _canonical(value: bytes | None) -> bytes:
    """Return the JSON with sorted keys, so that equal JSON gives equal bytes."""
    return orjson.dumps(orjson.loads(value or b"null"), option=orjson.OPT_SORT_KEYS)


def show_wrong(console: Console, wrong: Mapping[str, int], departures: int, picture: Path) -> None:
    """Print how many departures each variant of the join joins with the wrong reading, and draw them."""
    title = "Departures joined with the wrong reading, if both arrive as they did in that year"
    console.print(f"\n[bold]{title}[/]")
    table = Table()
    table.add_column("join")
    table.add_column("wrong", justify="right")
    table.add_column("share", justify="right")
    for variant, count in wrong.items():
        table.add_row(variant, f"{count:,}", f"{count / departures:.1%}")
    console.print(table)
    bars = [
        Bar(variant, count / departures, f"{count:,} ({count / departures:.1%})") for variant, count in wrong.items()
    ]
    picture.write_text(bar_chart(title, f"of {departures:,} departures from New York in 2013", bars))
