"""The report at the end of the demo."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tidegate.devkit.demo.expected_updates import Expected

QUESTIONS = (
    (
        "What is held now, oldest first? (the buffer is a Delta table)",
        "SELECT key, held_since, value FROM carrier_updates_buffer ORDER BY place LIMIT 5",
    ),
    (
        "Which keys gained most from suppression?",
        "SELECT key, count(*) AS updates, max(event_time) AS newest FROM carrier_updates_emissions "
        "GROUP BY key ORDER BY updates DESC LIMIT 5",
    ),
    (
        "What went out on a day with a storm?",
        "SELECT date_trunc('HOUR', event_time) AS hour, count(*) AS updates, "
        "round(avg(get_json_object(value, '$.delay_min')), 1) AS average_delay FROM carrier_updates_emissions "
        "WHERE event_time BETWEEN '2013-03-08 12:00' AND '2013-03-08 16:00' GROUP BY 1 ORDER BY 1",
    ),
)


def ask(console: Console, spark: Any, questions: Iterable[tuple[str, str]]) -> None:
    """Print the questions, their SQL and the answers."""
    for question, query in questions:
        console.print(f"\n[bold]{question}[/]\n[dim]{query}[/]", highlight=False)
        console.print(_table(spark.sql(query).toArrow()))


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


def where_next(console: Console, file: Path) -> None:
    """Print what to try next."""
    name = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    console.print(
        f"""
Where to look next
  .venv/bin/tidegate sql {name} "SELECT * FROM carrier_updates_emissions LIMIT 10"
  .venv/bin/tidegate sql {name} --version 1 "SELECT count(*) FROM carrier_updates_buffer"
  .venv/bin/tidegate sql {name} "SELECT * FROM weather_as_of('2013-07-04 16:00')"
  .venv/bin/tidegate advise {name} flights_with_weather
  .venv/bin/tidegate windows {name} departures_per_hour
  {name.parent}/wrong-readings.svg: what the join would do without its grace; blizzard.svg: counts of any hour
  {name}: the configuration; {name.parent}/lake: the operator log, an open Delta table
  docs/protocol.md: what each row means; docs/how-to: joins, windows and more; libs/tidegate/operators: the rules
""",
        soft_wrap=True,
    )


def _pairs(spark: Any, query: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in spark.sql(query).collect()]


def _count(spark: Any, view: str) -> int:
    return int(spark.sql(f"SELECT count(*) FROM {view}").collect()[0][0])


def _table(rows: Any) -> Table:
    table = Table()
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    return table
