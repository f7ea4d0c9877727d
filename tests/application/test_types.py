"""Unsound programs do not type-check: the methods of streams, windows and tables, as mypy sees them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fast, pytest.mark.process]

ROOT = Path(__file__).resolve().parents[2]

SOUND = """
from datetime import timedelta
from pyspark.sql import DataFrame
import tidegate as tg
import tidegate.spark

app = tg.Application("flights", kafka="127.0.0.1:9092", lake="lake", keep_output=timedelta(days=30))
departures = app.stream("departures", name="updates", key=tg.string())
windows = departures.window(tg.tumbling("1h", grace=0))
weather = app.table("weather", history="30d")
departures.suppress(tg.time_limit("30s"), tg.max_keys(1_000, when_full="emit")).to("updates")
windows.count().suppress(tg.window_close(), tg.max_keys(9, when_full="spill")).to("x", key=tg.kafka_windows())
windows.aggregate("module:function", every=10, evictor=tg.newest(100)).keep()
windows.aggregate(tg.count(), tg.max("delay")).keep()
app.windowed_stream("x", name="closed").suppress(tg.window_close(grace="5m")).to("y")
departures.join(weather, how="left", grace="2h").to("joined")
departures.deduplicate(within="forever").keep()
departures.deduplicate(tg.max_keys(9, when_full="shut_down"), within="10m", grace=timedelta(hours=1)).to("once")
app.windowed_stream("x", name="once").deduplicate(within="10m", grace=0).to("y")
hourly = departures.filter("delay > 5").window(tg.tumbling("1h", grace=0)).count(name="hourly")
hourly.suppress(tg.window_close(), name="final").filter(tg.col("count") < 3).to("quiet", key=tg.kafka_windows())
departures.filter("delay > 5").with_columns(hours="delay / 60").to("late")
departures.to("copied")
departures.suppress(tg.time_limit("1s")).window(tg.unlimited()).aggregate(n=tg.count(), name="all").keep()
departures.join(weather, how="left").require("true", "never").select(delay="stream.delay").keep()

def on(rows: DataFrame) -> tidegate.spark.Query:
    frame = tidegate.spark.stream(rows, key="airport", timestamp="at", order_by=["arrival", "at"])
    tidegate.spark.table(rows, key="airport", timestamp="at", order_by="arrival", history="30d").start("t", lake="lake")
    counts = frame.filter("delay > 5").window(tg.tumbling("1h", grace=0)).count(name="hourly")
    return counts.suppress(tg.window_close(), name="final").start("hourly", lake="lake")
"""

UNSOUND = {
    "departures.suppress(tg.window_close())": "arg-type",
    "weather.to('x')": "attr-defined",
    "windows.count().suppress(tg.window_close(), tg.max_keys(9, when_full='emit'))": "call-overload",
    "departures.window(tg.unlimited()).count().suppress(tg.window_close())": "arg-type",
    "departures.join(departures, how='left')": "arg-type",
    "departures.join(weather, how='outer')": "arg-type",
    "departures.suppress(tg.time_limit(30))": "arg-type",
    "departures.suppress(tg.time_limit('1s')).to('x', key=tg.kafka_windows())": "call-arg",
    "departures.window(tg.tumbling('1h', grace=0)).count().window(tg.unlimited())": "attr-defined",
    "departures.filter('true').to('x', key=tg.kafka_windows())": "call-arg",
    "departures.suppress(tg.time_limit('1s')).start('x')": "call-arg",
    "departures.filter(lambda row: row)": "arg-type",
    "departures.deduplicate(within='10m')": "call-overload",
    "departures.deduplicate(tg.max_keys(9, when_full='emit'), within='forever')": "call-overload",
    "weather.deduplicate(within='forever')": "attr-defined",
    "app.windowed_stream('x', name='y').deduplicate(within='forever').to('z', key=tg.kafka_windows())": "call-arg",
    "windows.to('x')": "attr-defined",
    "tg.max_keys(9, when_full='wait')": "call-overload",
    "app.stream('x')": "call-arg",
    "tg.near_last(5, 'delay', distance='module:function')": "call-overload",
    "tg.tumbling('1h')": "call-arg",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The errors of a strict check, by line."""
    program = tmp_path_factory.mktemp("program") / "app.py"
    program.write_text(SOUND + "\n".join(UNSOUND) + "\n")
    return strict(program)


def strict(program: Path) -> dict[int, str]:
    """The errors that `mypy --strict` finds in the program, by line."""
    return strict_all([program]).get(program.name, {})


def strict_all(programs: Sequence[Path]) -> dict[str, dict[int, str]]:
    """The errors that `mypy --strict` finds in the programs, by the file's name and by line."""
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={cache}"]
    command += [f"--config-file={ROOT / 'pyproject.toml'}", *map(str, programs)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    found: dict[str, dict[int, str]] = {}
    for name, line, code in re.findall(r"^(\S+?):(\d+): error: .*\[([a-z-]+)\]$", ran.stdout, re.MULTILINE):
        found.setdefault(Path(name).name, {})[int(line)] = code
    return found


def test_valid_programs_type_check(found: dict[int, str]) -> None:
    assert [line for line in found if line <= SOUND.count("\n")] == []


@pytest.mark.parametrize("statement", UNSOUND)
def test_unsound_programs_do_not_type_check(statement: str, found: dict[int, str]) -> None:
    line = SOUND.count("\n") + 1 + list(UNSOUND).index(statement)
    assert found.get(line) == UNSOUND[statement]
