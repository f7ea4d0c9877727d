"""The demo's suppression: at most one update per carrier and airport in 30 minutes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from tidegate.devkit.demo.expected.updates import Expected

STORM = (
    "What went out on a day with a storm?",
    """SELECT date_format(date_trunc('HOUR', event_time), 'd MMM HH:mm') AS hour_utc,
       count(*) AS updates,
       round(avg(get_json_object(value, '$.delay_min')), 1) AS average_delay_min
FROM carrier_updates_emissions
WHERE event_time BETWEEN '2013-03-08 12:00' AND '2013-03-08 16:00'
GROUP BY 1 ORDER BY 1""",
)


def summary(console: Console, spark: Any, operator: str, records: int) -> None:
    """Print a table of records read, emitted (by cause), held, and late or rejected."""
    by_cause = dict(_pairs(spark, f"SELECT cause, count(*) FROM {operator}_emissions GROUP BY cause ORDER BY cause"))
    emitted = sum(by_cause.values())
    table = Table(title="Suppression: at most one update per carrier and airport in 30 minutes", title_justify="left")
    table.add_column("what")
    table.add_column("records", justify="right")
    rows = [("departures in", f"{records:,}")]
    rows += [(f"updates emitted, cause {cause}", f"{count:,}") for cause, count in by_cause.items()]
    rows += [
        ("held at the end (last update still waiting)", f"{_count(spark, f'{operator}_buffer'):,}"),
        ("suppressed: replaced before they were sent", f"{records - emitted - _count(spark, f'{operator}_buffer'):,}"),
        ("late", f"{_count(spark, f'{operator}_late'):,}"),
        ("rejected", f"{_count(spark, f'{operator}_rejected'):,}"),
        ("reduction", f"{1 - emitted / records:.1%}"),
    ]
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def compare(
    console: Console,
    output: list[list[tuple[bytes | None, bytes | None, int]]],
    held: set[tuple[bytes | None, bytes | None, int]],
    expectation: list[Expected],
) -> bool:
    """Print whether emissions, their order per partition and the buffer are as expected; return True if they are."""
    wanted_held = {(key, value, timestamp) for part in expectation for key, (value, timestamp) in part.held.items()}
    wrong = [partition for partition, part in enumerate(expectation) if output[partition] != part.emissions]
    right = not wrong and held == wanted_held
    checked = sum(len(part.emissions) for part in expectation)
    if right:
        console.print(
            f"\n[green]Checked:[/] all {checked:,} emissions in the output topic, their order in each partition and "
            f"the {len(held)} held updates equal an independent computation."
        )
    else:
        console.print(f"\n[red]Wrong:[/] partitions {wrong} or the buffer differ from an independent computation.")
    return right


def _pairs(spark: Any, query: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in spark.sql(query).collect()]


def _count(spark: Any, view: str) -> int:
    return int(spark.sql(f"SELECT count(*) FROM {view}").collect()[0][0])
