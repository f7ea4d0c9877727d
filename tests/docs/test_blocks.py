"""Each block of code in the documentation is run by a test, or its commands, options and calls are checked."""

from __future__ import annotations

import ast
import importlib
import re
from typing import Any

import pytest

import tidegate
from tests.docs.checks import CHECKS, console_problem, python_problem, shell_problem, yaml_problem
from tests.docs.pages import DOCS, ROOT, Block, blocks, pages
from tidegate.cli.main import COMMANDS
from tidegate.runtime.telemetry.metric_definitions import BY_NAME

pytestmark = pytest.mark.fast

BLOCKS = [block for page in pages() for block in blocks(page)]

RUN = {
    "docs/concepts/pipelines.md": ("tests/pipelines/test_page.py", {"text"}),
    "docs/how-to/applications.md": ("tests/application/test_programs.py", {"yaml", "python", "text"}),
    "docs/how-to/batch-functions.md": ("tests/application/test_how_to_batch_functions.py", {"yaml", "python"}),
    "docs/how-to/control-database.md": ("tests/control/test_how_to.py", {"sh", "sql"}),
    "docs/how-to/evictors.md": ("tests/operators/windowed_aggregation/test_how_to_evictors.py", {"yaml", "python"}),
    "docs/how-to/joins.md": ("tests/docs/test_how_tos.py", {"yaml", "sh", "python"}),
    "docs/how-to/migrate-from-foreachbatch.md": ("tests/docs/test_how_tos.py", {"python"}),
    "docs/how-to/migrate-from-flink.md": ("tests/docs/test_how_tos.py", {"yaml", "sh"}),
    "docs/how-to/migrate-from-kafka-streams.md": ("tests/docs/test_how_tos.py", {"python", "yaml", "sh"}),
    "docs/how-to/monitoring.md": ("tests/docs/test_how_tos.py", {"yaml", "sh"}),
    "docs/how-to/plan-and-apply.md": ("tests/docs/test_how_tos.py", {"yaml", "sh"}),
    "docs/how-to/protobuf.md": ("tests/application/test_how_to_protobuf.py", {"json", "proto", "python"}),
    "docs/how-to/refused-records.md": ("tests/docs/test_how_tos.py", {"yaml", "sh", "python"}),
    "docs/how-to/spark-streams.md": ("tests/runtime/stream/test_how_to.py", {"python"}),
    "docs/how-to/windows.md": ("tests/docs/test_how_tos.py", {"yaml", "sh", "python"}),
    "docs/operators/stream_table_join.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/operators/suppression.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/operators/table_history.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/operators/windowed_aggregation.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/operators/stream_stream_join.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/operators/deduplicate.md": ("tests/docs/test_operator_pages.py", {"yaml", "sh"}),
    "docs/tutorial/console.md": ("tests/docs/test_console_tutorial.py", {"sql"}),
    "docs/tutorial/index.md": ("tests/docs/test_tutorial.py", {"python", "yaml", "sh"}),
}
"""Pages whose blocks of these languages are run, and the tests that do it."""

QUOTED = {"docs/comparison.md": {"java", "sql", "text"}}
"""Pages with programs of other systems, which nothing here runs."""

LISTED = set(re.findall(r"^::: ([\w.]+)$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE))
"""What the reference of Python shows, by full names."""


def name_of(thing: Any) -> str:
    """The full name of a class or function."""
    return f"{thing.__module__}.{thing.__qualname__}"


def place_of(block: Block) -> str:
    """Where the block stands, as an id of a test."""
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", BLOCKS, ids=place_of)
def test_every_block_is_run_by_a_test_or_contains_only_existing_names(block: Block) -> None:
    _, run = RUN.get(block.page, ("", set()))
    assert block.language in run | set(CHECKS) | QUOTED.get(block.page, set()), (
        f"list the test that runs it in {__file__}"
    )
    if block.language in CHECKS:
        assert CHECKS[block.language](block.text) is None


@pytest.mark.parametrize("page", [page for page in RUN if (ROOT / page).exists()])
def test_the_test_that_runs_a_page_names_it(page: str) -> None:
    test = (ROOT / RUN[page][0]).read_text()
    assert page.rpartition("/")[2] in test or page.rpartition("/")[2].removesuffix(".md") in test


def test_every_command_that_a_sentence_names_is_there() -> None:
    named = {name for page in pages() for name in re.findall(r"`tidegate ([a-z]+)", page.read_text())}
    assert named <= set(COMMANDS) and len(named) > 8


def test_every_picture_that_a_page_shows_is_there() -> None:
    shown = [
        (page, name) for page in DOCS.rglob("*.md") for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text())
    ]
    assert [f"{page}: {name}" for page, name in shown if not (page.parent / name).is_file()] == []
    assert {name.rpartition("/")[2] for _, name in shown} == {path.name for path in (DOCS / "pictures").iterdir()}


@pytest.mark.parametrize(
    ("problem", "text", "says"),
    [
        (shell_problem, "tidegate validate flights.yaml --loud", "--loud"),
        (shell_problem, "cd x && tidegate fly", "no command fly"),
        (shell_problem, "make everything", "no target"),
        (shell_problem, "rm -rf x", "not known"),
        (yaml_problem, "updates:\n  kind: suppression\n  inptu: a\n  until: {time_limit: 3s}", "inptu"),
        (yaml_problem, "trigger: soon", "soon"),
        (console_problem, "weather: all is lost", "all is lost"),
        (python_problem, "import tidegate\ntidegate.spark.start(df, rules, lake='x', keys='k')", "start"),
    ],
)
def test_a_block_with_a_name_that_does_not_exist_is_detected(problem, text: str, says: str) -> None:
    assert says in problem(text)


def test_every_name_of_the_package_is_in_the_reference() -> None:
    assert [name for name in tidegate.__all__ if name_of(getattr(tidegate, name)) not in LISTED] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=place_of)
def test_programs_of_pages_import_public_names_alone(block: Block) -> None:
    assert [name for name in imported(block.text) if not is_public(*name)] == []


def imported(text: str) -> list[tuple[str, str]]:
    """What a program imports from `tidegate`: modules and names."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if node.module is not None and node.module.split(".")[0] == "tidegate"]
    return [(node.module or "", each.name) for node in ours for each in node.names]


def is_public(module: str, name: str) -> bool:
    """Return whether the reference has the name: by itself, or as one of a module that it shows."""
    found = importlib.import_module(module)
    return name_of(getattr(found, name)) in LISTED or (module in LISTED and name in found.__all__)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    """Those of the site are checked when it is built."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_queries_of_the_page_on_monitoring_use_existing_metrics() -> None:
    page = (DOCS / "how-to" / "monitoring.md").read_text()
    asked = set(re.findall(r"tidegate_[a-z_]+", re.sub(r"_(bucket|sum|count)\b", "", page)))
    assert asked and asked <= BY_NAME.keys()
