"""The Python of the tables that map another system to Tidegate: each call is one that a program can make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.docs.pages import DOCS

pytestmark = pytest.mark.fast

PAGES = ("evictors.md", "migrate-from-flink.md", "migrate-from-kafka-streams.md")
HEAD = re.compile(r"^\| [\w ]+ \| Python \| YAML \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)", re.MULTILINE)


def codes() -> Iterator[tuple[str, str]]:
    """Each page with each piece of Python in the column of that name."""
    for page in PAGES:
        [rows] = HEAD.findall((DOCS / "how-to" / page).read_text())
        cells = [row.removeprefix("| ").split(" | ")[1] for row in rows.splitlines()]
        found = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
        yield from ((page, code) for code in found if code.startswith((".", "tg.", "app.")))


CODES = list(codes())


def test_the_tables_contain_python() -> None:
    assert {page for page, _ in CODES} == set(PAGES) and len(CODES) > 60


@pytest.mark.parametrize(("page", "code"), CODES)
def test_a_call_of_a_table_can_be_made(page: str, code: str) -> None:
    assert problems(code) is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ('.window(tg.tumbling("1h"))', "grace"),
        (".count(evictor=tg.latest(3))", "latest"),
        ('.suppress(tg.time_limit("soon"), tg.time_limit("1h"))', "another limit"),
    ],
)
def test_a_call_that_no_program_can_make_is_detected(code: str, says: str) -> None:
    assert says in str(problems(code))


def problems(code: str) -> list[str] | None:
    """What is wrong with the call on each thing that it might be a method of; None if one of them takes it."""
    app = tg.Application("shop", kafka="127.0.0.1:9092", lake="lake", keep_output="forever")
    stream = app.stream("orders", name="orders", value=tg.json({"count": "int64", "customer": "string"}))
    windowed = stream.window(tg.tumbling("1h", grace="2h"))
    names = {"tg": tg, "app": app, "table": app.table("weather", history="30d"), "function": "gates:worst"}
    names |= {"branch": stream.filter("count > 5"), "stream": stream, "windowed": windowed, "results": windowed.count()}
    owners = ("stream", "windowed", "results") if code.startswith(".") else ("",)
    found = [_problem(owner + code, names) for owner in owners]
    return None if None in found else [each for each in found if each is not None]


def _problem(code: str, names: dict[str, Any]) -> str | None:
    try:
        made = eval(code, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    faults = made.definition.problems if hasattr(made, "definition") else ()
    return str(faults) if faults else None
