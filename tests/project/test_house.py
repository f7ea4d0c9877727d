"""Rules about the folders and modules of the project that no other tool checks."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.conftest import LONGEST
from tidegate.operators.registry import kind_of, kinds

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for room in ("libs", "services") for path in (ROOT / room).rglob("*.py"))
ROOMS = [
    *(f"libs/tidegate/operators/{name}" for name in kinds()),
    *(f"services/{name}" for name in (*kinds(), "console")),
    "libs/tidegate/control",
    "benchmarks",
    "infra",
    "migrations",
]

MAY_NAME_KINDS = {
    "libs/tidegate/__init__.py": "exports the public names",
    "libs/tidegate/application": "is the Python interface, with a method per kind",
    "libs/tidegate/operators/registry.py": "has one line per kind",
    "libs/tidegate/runtime/spark/history.py": "is the Python access to a table's history",
    "libs/tidegate/runtime/task/log_rows.py": "reads a table's history where there is no Spark session",
    "libs/tidegate/devkit/demo": "is a program of a user",
    "services/stack_demo": "is a program of a user",
} | {
    f"{folder}/{kind}": "is the folder of a kind"
    for folder, names in (("libs/tidegate/operators", kinds()), ("services", kinds()))
    for kind in names
}
"""Everything else asks the entry of a kind, so that a new kind needs no change there."""
MOST_ROOMS = 16
"""More beside each other are not found by their names at one look."""

pytestmark = pytest.mark.fast


def test_imports_go_downwards_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("logging.config.dictConfig", lambda config: None)  # it would silence the loggers of later tests
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_no_folder_has_entries_that_import_each_other_in_a_cycle() -> None:
    """So the folders can be drawn with all arrows downwards, not only those that have a contract."""
    house = grimp.build_graph("tidegate", exclude_type_checking_imports=True, cache_dir=None)
    imports = [(module, other) for module in house.modules for other in house.find_modules_directly_imported_by(module)]
    for folder, arrows in _arrows(imports).items():
        try:
            TopologicalSorter(arrows).prepare()
        except CycleError as error:
            pytest.fail(f"a circle in {folder}: {' <- '.join(error.args[1])}")


def test_an_import_cycle_is_reported_for_the_folder_that_contains_it() -> None:
    imports = [("t.a.x", "t.b.y"), ("t.b.z", "t.a.w"), ("t.a", "t.a.x"), ("t.a.x", "t.a.w")]
    assert _arrows(imports) == {"t": {"a": {"b"}, "b": {"a"}}, "t.a": {"x": {"w"}}}


def test_the_guide_for_contributors_lists_the_packages_in_the_order_of_the_contract() -> None:
    [block] = re.findall(r"```\n(cli .*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    written = [line.split("  ")[0].split(", ") for line in block.splitlines() if not line.startswith(" ")]
    layers = next(contract["layers"] for contract in _contracts() if contract.get("containers") == ["tidegate"])
    assert [set(names) for names in written] == [set(layer.split(" | ")) for layer in layers]


def test_the_contract_of_independent_kinds_lists_every_kind() -> None:
    [modules] = [contract["modules"] for contract in _contracts() if contract["type"] == "independence"]
    assert set(modules) == {f"tidegate.operators.{kind}" for kind in kinds()}


def test_numba_is_imported_in_one_place() -> None:
    places = _using(lambda node: "numba" in _imported(node))
    assert {str(Path(place).parent) for place in places} == {"libs/tidegate/kernels/compiled"}


def test_the_wall_clock_is_read_in_one_place() -> None:
    assert _using(_reads_the_wall_clock) == ["libs/tidegate/contracts/clock.py"]


def test_nothing_is_patched_in_the_library() -> None:
    """The simulation, too, passes its world as arguments."""
    assert _using(lambda node: _imported(node) & {"unittest", "mock", "pytest"}) == []


def test_the_log_is_never_updated_to_whatever_is_newest() -> None:
    """`DeltaTable.update_incremental` pulls in a rival's commit, and then lets both drivers go on."""
    assert _using(lambda node: isinstance(node, ast.Attribute) and node.attr == "update_incremental") == []


def test_a_group_s_offsets_are_committed_in_transactions_only() -> None:
    """The publication mark travels with the output; whatever else wrote the group would break it."""
    assert _using(_commits_offsets_outside_of_transactions) == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_folder_says_what_it_is_for(room: str) -> None:
    readme = ROOT / room / "README.md"
    assert readme.is_file() and len(readme.read_text().splitlines()) >= 3


def test_every_module_of_the_library_says_what_it_is_for() -> None:
    modules = [path for path in SOURCES if path.is_relative_to(ROOT / "libs")]
    assert [str(path.relative_to(ROOT)) for path in modules if not ast.get_docstring(_tree(path))] == []


def test_no_folder_has_more_than_sixteen_entries() -> None:
    tops = ("libs", "services", "benchmarks", "infra", "tests")
    folders = {path.parent for top in tops for path in (ROOT / top).rglob("*.py")}
    folders.remove(ROOT / "tests")  # beside the folders of the library's parts, one for each kind of test
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if len(_rooms(folder)) > MOST_ROOMS] == []


def test_no_file_names_a_kind_but_its_folder_and_the_registry() -> None:
    entries = [kind_of(kind) for kind in kinds()]
    names = {name for kind in entries for name in (kind.name, kind.config.__name__, kind.rules.__name__)}
    names |= {kind.operator.__name__ for kind in entries}
    names -= {"pipeline"}  # a word of the project's language, too
    naming = {str(path.relative_to(ROOT)): names & set(re.findall(r"\w+", path.read_text())) for path in SOURCES}
    assert {path: found for path, found in naming.items() if found and not _may_name_kinds(path)} == {}


def test_every_exception_to_the_naming_of_kinds_is_needed() -> None:
    assert [place for place in MAY_NAME_KINDS if not (ROOT / place).exists()] == []


@pytest.mark.process
def test_a_service_does_not_import_the_test_tools_of_a_kind() -> None:
    program = (
        "import sys; from tidegate.operators.registry import kinds, kind_of; import tidegate.runtime.service\n"
        "for kind in kinds(): kind_of(kind)\n"
        "parts = {'adapters', 'cases', 'reference', 'simulation', 'strategies', 'testing'}\n"
        "of_kinds = [name for name in sys.modules if name.startswith('tidegate.operators.')]\n"
        "tools = sys.modules.keys() & {'hypothesis', 'pytest', 'tidegate.testing'}\n"
        "print([*tools, *(name for name in of_kinds if parts & set(name.split('.')))])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_files_that_are_run_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / f"{name}.py").is_file()] == []


def test_functions_are_small() -> None:
    lengths = [node.end_lineno - node.lineno + 1 for _, node in _nodes() if isinstance(node, ast.FunctionDef)]  # type: ignore[operator]
    assert statistics.median(lengths) <= 8
    assert sum(length < 40 for length in lengths) >= 0.98 * len(lengths)


def _contracts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def _may_name_kinds(path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in MAY_NAME_KINDS)


def _rooms(folder: Path) -> list[Path]:
    named = [path for path in folder.iterdir() if not path.name.startswith("__")]
    return [path for path in named if path.suffix == ".py" or any(path.rglob("*.py"))]


def _arrows(imports: Iterable[tuple[str, str]]) -> dict[str, dict[str, set[str]]]:
    """Return by folder which of its rooms import which others, at any depth."""
    found: dict[str, dict[str, set[str]]] = {}
    for module, other in imports:
        ways = module.split("."), other.split(".")
        shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*ways, strict=False))))
        if shared < min(map(len, ways)):
            rooms = found.setdefault(".".join(ways[0][:shared]), {})
            rooms.setdefault(ways[0][shared], set()).add(ways[1][shared])
    return found


def _using(is_use: object) -> list[str]:
    return sorted({str(path.relative_to(ROOT)) for path, node in _nodes() if is_use(node)})  # type: ignore[operator]


@cache
def _nodes() -> tuple[tuple[Path, ast.AST], ...]:
    return tuple((path, node) for path in SOURCES for node in ast.walk(_tree(path)))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {name.name.split(".")[0] for name in node.names}
    return {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _commits_offsets_outside_of_transactions(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(name.name == "OffsetCommitRequest" for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ("OffsetCommitRequest", "alter_consumer_group_offsets")


def _reads_the_wall_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        return any(name.name in ("time", "time_ns") for name in node.names)
    if not isinstance(node, ast.Attribute):
        return False
    of_time = isinstance(node.value, ast.Name) and node.value.id == "time"
    return (of_time and node.attr in ("time", "time_ns")) or node.attr in ("utcnow", "today") or _is_now(node)


def _is_now(node: ast.Attribute) -> bool:
    return node.attr == "now" and isinstance(node.value, ast.Name | ast.Attribute) and "date" in ast.unparse(node.value)
