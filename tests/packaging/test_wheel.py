"""The wheel, installed in empty environments and used in empty folders: nothing of it needs a checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.topics import create_topic

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3_600_000
CORE = """
import sys
from importlib.util import find_spec
from pathlib import Path
import tidegate
assert Path(tidegate.__file__).is_relative_to(sys.prefix), tidegate.__file__
assert not [name for name in ("pyspark", "delta", "kafka", "sqlalchemy", "services", "migrations") if find_spec(name)]
prices = tidegate.VersionedTable("prices", history_retention_ms=3_600_000)
prices.put(b"apple", b"3", 1_000)
assert prices.get(b"apple", 2_000).value == b"3"
"""

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the files that are in the repository."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, text=True)
    there = [name for name in files.split("\0") if name and (ROOT / name).exists()]
    archive = subprocess.run(
        ["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input="\0".join(there).encode(), capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    pip(sys.prefix, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built), str(source))
    [found] = built.glob("tidegate-*.whl")
    return found


def environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def pip(prefix: str | Path, *arguments: str) -> None:
    """Run this environment's pip for another, which takes seconds to be given one of its own."""
    command = [sys.executable, "-m", "pip", "--python", f"{prefix}/bin/python", "--quiet", *arguments]
    subprocess.run(command, check=True, timeout=500)


def run(
    prefix: Path, *command: str, home: Path, code: int = 0, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment in its empty folder; only how to start Java is from the checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "TIDEGATE_", "SPARK_", "PYSPARK_PYTHON", "PYSPARK_DRIVER")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    variables["TIDEGATE_NUMBA"] = "off"
    home.mkdir(exist_ok=True)
    ran = subprocess.run(
        [str(prefix / "bin" / command[0]), *command[1:]],
        cwd=home,
        env=variables,
        text=True,
        input=text,
        capture_output=True,
        timeout=500,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


def constraints(folder: Path) -> Path:
    """The versions of the lock, without the hashes, which pip takes for requirements only."""
    pins = re.findall(r"^[\w.\[\]-]+==\S+(?: ; .*?)?(?= \\$)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    file = folder / "constraints.txt"
    file.write_text("\n".join(re.sub(r"\[.*?\]", "", pin) for pin in pins))
    assert len(pins) > 50
    return file


def test_the_wheel_holds_tidegate_alone_with_its_migrations(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tidegate"}
    assert "tidegate/migrations/versions/0001_the_control_database.py" in names
    assert "tidegate/devkit/demo/app.py" in names
    assert not [name for name in names if name.startswith("tidegate/testing/simulation")]


def test_the_core_is_installed_and_used_without_spark(wheel: Path, tmp_path: Path) -> None:
    prefix = environment(tmp_path / "venv")
    pip(prefix, "install", "--no-compile", "--constraint", str(constraints(tmp_path)), str(wheel))
    run(prefix, "python", "-c", CORE, home=tmp_path / "empty")
    assert "Commands:" in run(prefix, "tidegate", "--help", home=tmp_path / "empty").stdout
    refused = run(prefix, "tidegate", "demo", home=tmp_path / "empty", code=2)
    assert refused.stderr.endswith("remedy: pip install 'tidegate[demo]'\n")


def installed(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """An environment with the wheel, and an empty folder with jars.

    Libraries are those of this environment, and kernels run as plain Python: 700 MB and two minutes less.
    """
    prefix, home = environment(folder / "venv"), folder / "empty"
    pip(prefix, "install", "--no-compile", "--no-deps", str(wheel))
    [site] = prefix.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    (home / ".tidegate" / "jars").mkdir(parents=True)
    for kind in ("spark", "broker"):
        (home / ".tidegate" / "jars" / kind).symlink_to(jars(kind))  # type: ignore[arg-type]
    return prefix, home


@pytest.mark.long
def test_set_up_and_demo_need_no_checkout(wheel: Path, tmp_path: Path) -> None:
    prefix, home = installed(wheel, tmp_path)
    [site] = prefix.glob("lib/python*/site-packages")
    where = run(prefix, "python", "-c", "import tidegate; print(tidegate.__file__)", home=home).stdout
    assert Path(where).is_relative_to(site)
    ready = run(prefix, "tidegate", "setup", home=home)
    assert "Compiled the kernels" in ready.stderr
    assert "Compil" not in run(prefix, "tidegate", "setup", home=home).stderr
    shown = run(prefix, "tidegate", "demo", "--days", "3", home=home)
    assert shown.stdout.count("Checked: ") == 5
    assert "make " not in shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr
    question = "SELECT count(*) AS emitted FROM flights_with_weather_emissions"
    answer = run(prefix, "tidegate", "sql", ".tidegate/demo/app.py:app", question, "--json", home=home)
    assert json.loads(answer.stdout)["emitted"] > 1_000
    current = run(prefix, "tidegate", "db", "current", ".tidegate/demo/app.py:app", home=home)
    assert "0001" in current.stdout


NOTEBOOK = """
import json, sys
import nbclient, nbformat

cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=400, kernel_name="python3", allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""
TYPO = """grace = "1h"
orders.filter("quantitty > 1").join(prices, how="left", grace=grace).keep()
app.check()
"""


@pytest.mark.long
def test_the_program_of_the_tutorial_runs_in_a_notebook(wheel: Path, tmp_path: Path, broker: Broker) -> None:
    prefix, home = installed(wheel, tmp_path)
    options = {"bootstrap.servers": broker.bootstrap}
    for topic in ("prices", "orders", "priced-orders"):
        create_topic(options, topic, 1)
    write_all(options, "prices", [(0, b"tea", b'{"price": 3.0}', 9 * HOUR)])
    write_all(options, "orders", [(0, b"tea", b'{"order": %d}' % hour, hour * HOUR) for hour in (9, 11)])
    [program] = [block.text for block in blocks(DOCS / "tutorial" / "index.md") if block.language == "python"]
    cells = [
        program.replace("127.0.0.1:9092", broker.bootstrap),
        "running = app.start()\nrunning.await_caught_up()",
        "running.sql('SELECT key, value, status FROM orders_with_prices_emissions')",
        "running.stop()",
        TYPO,
    ]
    *ran, wrong = json.loads(run(prefix, "python", "-c", NOTEBOOK, home=home, text=json.dumps(cells)).stdout)
    assert [output["evalue"] for cell in ran for output in cell if output["output_type"] == "error"] == []
    [shown] = [output["data"] for output in ran[2]]
    assert '"price": 3.0' in shown["text/plain"] and "<table>" in shown["text/html"]
    [error] = [output for output in wrong if output["output_type"] == "error"]
    assert (error["ename"], "<cell>:2 .filter()" in error["evalue"]) == ("ConfigurationError", True), error["evalue"]
    assert "no column quantitty" in error["evalue"] and "there are: " in error["evalue"]
