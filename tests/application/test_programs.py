"""The programs of docs/how-to/applications.md: ten typed lines at most, run on a real broker and one Spark session."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidegate as tg
from tests.application.test_types import strict
from tests.docs.pages import DOCS
from tests.patience import PATIENCE_S, wait_for
from tidegate.application.loading import load_application
from tidegate.contracts.errors import ConfigurationError, EngineError, UserError
from tidegate.devkit.produce_consume import read_all, write_all

PAGE = (DOCS / "how-to" / "applications.md").read_text()
HOUR = 3_600_000


def section(heading: str) -> list[str]:
    """The blocks of Python below a heading."""
    [text] = [part for part in PAGE.split("\n## ") if part.startswith(heading)]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


PROGRAMS = {
    "limit": section("At most one update"),
    "join": section("A join"),
    "evictor": section("Windows that keep"),
    "store": section("A store"),
}


@pytest.mark.fast
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_at_most_ten_lines(name: str) -> None:
    assert len([line for line in PROGRAMS[name][-1].splitlines() if line.strip()]) <= 10


@pytest.mark.fast
@pytest.mark.process
def test_the_programs_pass_the_type_checker(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    functions = "\n".join(PROGRAMS["evictor"][:-1])
    (tmp_path / "gates.py").write_text(functions)
    parts = [f"def program_{name}() -> None:\n" + indented(PROGRAMS[name][-1]) for name in PROGRAMS]
    program.write_text("\n".join(parts))
    assert strict(program) == {}


def indented(program: str) -> str:
    return "".join(f"    {line}\n" for line in program.splitlines())


@pytest.mark.fast
def test_the_file_of_the_page_is_its_first_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert tg.Application.from_yaml(text) == written("limit", tmp_path)
    assert yaml.safe_load(text) == yaml.safe_load(written("limit", tmp_path).to_yaml())


@pytest.mark.fast
def test_problems_look_as_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    program = PROGRAMS["limit"][0].replace('"30s"', '"30"').replace("app.run()", 'app.stream("x", name="flights")')
    (tmp_path / "app.py").write_text(program)
    with pytest.raises(ConfigurationError) as caught:
        load_application(tmp_path / "app.py:app").check()
    [text] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert f"{caught.value}\n" == text


def written(name: str, folder: Path) -> Any:
    """The application of the program, which is written to the folder with the modules beside it."""
    *modules, program = PROGRAMS[name]
    for text in modules:
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    (folder / "app.py").write_text(program)
    return load_application(folder / "app.py:app")


def records(kafka: dict[str, str], topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of all committed records of the topic's only partition."""
    return [(key, value) for key, value, _ in read_all(kafka, topic)[0]]


@pytest.mark.broker
@pytest.mark.spark
def test_each_key_has_at_most_one_update_per_time_limit(kafka: dict[str, str], spark: Any, tmp_path: Path) -> None:
    updates = [(b"UA", b"1", 0), (b"UA", b"2", 10_000), (b"AA", b"3", 40_000)]
    write_all(kafka, "departures", [(0, *each) for each in updates])
    app = written("limit", tmp_path)
    with app.start() as running:
        running.await_caught_up("2m")
        wait_for(lambda: records(kafka, "carrier-updates") == [(b"UA", b"2")])  # a moment after the transaction's end
        check_handle(app, running)
        check_cells_that_run_again(app, running, tmp_path)
    assert not running.is_running


def check_handle(app: Any, running: Any) -> None:
    """The handle shows how far the application is and what it holds."""
    [row] = running.status()["carrier_updates"]["partitions"]
    assert (row["offset"], row["lag"], row["held"]) == (3, 0, 1)
    assert "<td>carrier_updates</td>" in running._repr_html_()
    held = running.sql("SELECT key, '<b>' AS tag FROM carrier_updates_buffer")
    assert [row["key"] for row in held] == ["AA"] and len(held) == 1
    assert "&lt;b&gt;" in held._repr_html_() and "<b>" not in held._repr_html_()
    assert "AA" in repr(held)
    check_queries(running)
    with pytest.raises(UserError, match="is not a duration"):
        running.await_caught_up("soon")


def check_queries(running: Any) -> None:
    """Errors show the statement and what Spark says of it; no other statement runs; equal names stay apart."""
    for query, message in {
        "SELECT * FROM carrier_updates_bufer": "TABLE_OR_VIEW_NOT_FOUND",
        "SELEC": "PARSE_SYNTAX_ERROR",
        "SELECT 1; DROP VIEW carrier_updates_log": "PARSE_SYNTAX_ERROR",
        "SELECT 1 / 0": "DIVIDE_BY_ZERO",
        "": "PARSE_EMPTY_STATEMENT",
    }.items():
        with pytest.raises(UserError, match=rf"Spark cannot run the query: \[{message}") as caught:
            running.sql(query)
        assert "carrier_updates_buffer" in caught.value.remedy and caught.value.value == (query or "(empty)")
    for statement in NO_QUERIES:
        with pytest.raises(UserError, match="not a query") as caught:
            running.sql(statement)
        assert caught.value.value == statement and "SELECT" in caught.value.remedy
    for look in ("SHOW VIEWS", "DESCRIBE carrier_updates_log", "EXPLAIN DROP VIEW carrier_updates_log"):
        assert running.sql(look)
    [row] = running.sql("SELECT key, 5 AS key, 6 AS key_2, count(*) OVER () AS n FROM carrier_updates_log LIMIT 1")
    assert list(row) == ["key", "key_3", "key_2", "n"] and (row["key_3"], row["key_2"]) == (5, 6)


NO_QUERIES = [
    "DROP VIEW carrier_updates_log",
    "INSERT INTO carrier_updates_log VALUES (1)",
    "WITH one AS (SELECT 1) INSERT INTO carrier_updates_log SELECT * FROM one",
    "FROM carrier_updates_log INSERT INTO one SELECT key INSERT INTO two SELECT key",
    "INSERT OVERWRITE DIRECTORY '/tmp/none' USING json SELECT 1",
    "DELETE FROM carrier_updates_log",
    "EXECUTE IMMEDIATE 'DROP VIEW carrier_updates_log'",
    "BEGIN DROP VIEW carrier_updates_log; END",
    "RESTORE TABLE carrier_updates_log TO VERSION AS OF 0",
    "VACUUM carrier_updates_log",
    "CREATE OR REPLACE TEMPORARY VIEW carrier_updates_log AS SELECT 1",
    "SET spark.sql.shuffle.partitions=1",
]


def check_cells_that_run_again(app: Any, running: Any, folder: Path) -> None:
    """Starting again gives the same handle; while it runs, other content is refused and the same changes nothing."""
    assert app.start() is running
    assert written("limit", folder).start() is running
    stream = app.stream("departures", name="carrier_updates", key=tg.string())
    with pytest.raises(UserError, match="cannot change while the application runs"):
        stream.suppress(tg.time_limit("1s")).to("carrier-updates")
    with pytest.raises(UserError, match="runs already"):
        app.run()
    assert running.is_running


def folders(folder: Path) -> Any:
    """Settings that keep everything in this folder."""
    return {"lake": folder / "lake", "state": folder / "state", "keep_output": "30d"}


@pytest.mark.broker
@pytest.mark.spark
def test_an_application_with_changed_content_replaces_the_running_one(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    app = tg.Application("flights", kafka="x:1", control=None, **folders(tmp_path))
    app.stream("departures", name="updates").suppress(tg.time_limit("30s")).keep()
    first = app.start()
    other = tg.Application("flights", kafka="x:1", control=None, **folders(tmp_path))
    other.stream("departures", name="updates").suppress(tg.time_limit("1m")).keep()
    with other.start() as second:
        assert second is not first and not first.is_running
        second.await_caught_up("2m")
        assert second.configuration.operators["updates"] != first.configuration.operators["updates"]
    app.stream("departures", name="updates").suppress(tg.time_limit("5s")).keep()


@pytest.mark.broker
@pytest.mark.spark
def test_a_handle_reports_an_operator_that_has_ended(kafka: dict[str, str], spark: Any, tmp_path: Path) -> None:
    app = tg.Application("lost", kafka="x:1", control=None, **folders(tmp_path))
    app.stream("no-such-topic", name="updates").suppress(tg.time_limit("30s")).keep()
    running = app.start()
    with pytest.raises((UserError, EngineError), match="topic"):
        running.await_caught_up("1m")
    with pytest.raises((UserError, EngineError), match="topic"):
        running.stop()


@pytest.mark.broker
@pytest.mark.spark
def test_each_flight_is_joined_with_the_weather_of_its_scheduled_time(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    weather = [(b"JFK", b'{"gust": 20}', 10 * HOUR), (b"JFK", b'{"gust": 50}', 12 * HOUR)]
    flights = [(b"JFK", json.dumps({"flight": at, "scheduled": at * HOUR}).encode(), 0) for at in (11, 20)]
    write_all(kafka, "weather", [(0, *each) for each in weather])
    write_all(kafka, "flights", [(0, *each) for each in flights])
    with written("join", tmp_path).start() as running:
        running.await_caught_up("2m")
    [(key, value)] = records(kafka, "flights-with-weather")
    assert key == b"JFK" and json.loads(value or b"")["table"] == {"gust": 20}


@pytest.mark.broker
@pytest.mark.spark
def test_a_window_that_never_ends_keeps_its_newest_elements(kafka: dict[str, str], spark: Any, tmp_path: Path) -> None:
    write_all(kafka, "gates", [(0, b"A1", json.dumps({"delay": delay}).encode(), delay) for delay in range(10)])
    with written("evictor", tmp_path).start() as running:
        running.await_caught_up("2m")
    assert records(kafka, "worst-gates") == [(b"A1", b"[7, 8, 9]")]


@pytest.mark.broker
@pytest.mark.spark
def test_windows_are_read_from_the_committed_state(
    kafka: dict[str, str], spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(kafka, "visits", [(0, b"JFK", b"", 4_000_000), (0, b"JFK", b"", 4_000_001), (0, b"LGA", b"", 4_000_002)])
    written("store", tmp_path)
    runpy.run_path(str(tmp_path / "app.py"), run_name="__main__")
    assert capsys.readouterr().out == "[b'2']\n"


@pytest.mark.broker
@pytest.mark.spark
def test_a_program_runs_until_it_is_asked_to_end_and_finishes_its_batch(kafka: dict[str, str], tmp_path: Path) -> None:
    write_all(kafka, "arrivals", [(0, b"UA", b"1", 0), (0, b"AA", b"2", 60_000)])
    program = PROGRAMS["limit"][0].replace("departures", "arrivals").replace("carrier-updates", "arrival-updates")
    (tmp_path / "app.py").write_text(program.replace("flights", "arrivals"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.Popen([sys.executable, tmp_path / "app.py"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not records(kafka, "arrival-updates") and time.monotonic() < deadline and ran.poll() is None:
            time.sleep(0.2)
        ran.send_signal(signal.SIGTERM)
        _, noted = ran.communicate(timeout=PATIENCE_S)
    finally:
        ran.kill()
    assert ran.returncode == 0, noted
    assert records(kafka, "arrival-updates") == [(b"UA", b"1")]


SUBMITTED = """
import tidegate as tg
from pyspark import SparkContext

app = tg.Application("submitted", kafka="127.0.0.1:9092", lake="./lake", keep_output="30d")
app.stream("arrivals", name="updates").suppress(tg.time_limit("30s")).keep()
if __name__ == "__main__":
    with app.start() as running:
        running.await_caught_up("2m")
        print(SparkContext.getOrCreate().master, running.status()["updates"]["partitions"][0]["lag"])
"""


@pytest.mark.broker
@pytest.mark.spark
def test_a_program_that_spark_submit_starts_has_its_master(kafka: dict[str, str], tmp_path: Path) -> None:
    write_all(kafka, "arrivals", [(0, b"UA", b"1", 0)])
    (tmp_path / "app.py").write_text(SUBMITTED)
    command = [Path(sys.executable).parent / "spark-submit", "--master", "local[1]", tmp_path / "app.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {"PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    assert "local[1] 0" in ran.stdout
