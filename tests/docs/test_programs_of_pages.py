"""Where a page shows a program and a file, they are one application, and the program is typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import tidegate as tg
from tests.application.test_types import strict_all
from tests.docs.pages import ROOT, Block, blocks, pages
from tidegate.application.loading import load_application

pytestmark = pytest.mark.fast

WORST = "".join(f"def {name}(*arguments: object) -> object: return arguments\n" for name in ("worst", "repeated"))
LEGS = """
import pyarrow as pa
import tidegate as tg

@tg.batch_function()
def is_known(rows: pa.RecordBatch) -> pa.Array: ...

@tg.batch_function(emits={"airport": "string", "delay": "int64"})
def stops(rows: pa.RecordBatch) -> pa.RecordBatch: ...
"""
MERGING = """
import pyarrow as pa


def delays(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch: ...
"""
MODULES = {"delays": WORST, "gates": WORST, "legs": LEGS, "merging": MERGING}
"""Modules of functions that programs import."""

SPARK = "from pyspark.sql import SparkSession\n\nspark: SparkSession\n"
"""What a reader has before the first block."""


def programs() -> Iterator[tuple[Block, Block]]:
    """Each program of a page, and the file that follows it."""
    for page in pages():
        written = [block for block in blocks(page) if block.language in ("python", "yaml")]
        pairs = (pair for pair in pairwise(written) if pair[1].language == "yaml")
        yield from ((one, file) for one, file in pairs if one.text.startswith("# app.py\n"))


PROGRAMS = list(programs())


def test_the_pages_contain_programs() -> None:
    assert {one.page for one, _ in PROGRAMS} >= {"README.md", "docs/how-to/joins.md", "docs/how-to/windows.md"}


@pytest.mark.parametrize(("program", "file"), PROGRAMS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_program_and_the_file_beside_it_are_one_application(
    program: Block, file: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for module, text in MODULES.items():
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "app.py").write_text(program.text)
    assert load_application(tmp_path / "app.py:app") == tg.Application.from_yaml(file.text)


@pytest.mark.process
def test_the_python_of_every_page_type_checks(tmp_path: Path) -> None:
    """Blocks of a page continue each other; a program of its own, `# app.py`, is a function."""
    for module, text in MODULES.items():
        (tmp_path / f"{module}.py").write_text(text)
    assert strict_all([file for page in pages() if (file := _typed_page(page, tmp_path)) is not None]) == {}


def _typed_page(page: Path, folder: Path) -> Path | None:
    """Write the page's Python to a file; None if it has none."""
    texts = [block.text for block in blocks(page) if block.language == "python"]
    programs = [text for text in texts if text.startswith("# app.py\n")]
    plain = [text for text in texts if text not in programs]
    name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
    file = folder / f"{name}_page.py"
    functions = [f"def program_{at}() -> None:\n" + _indented(text) for at, text in enumerate(programs)]
    file.write_text("\n".join([SPARK, *plain, *functions]))
    return file if texts else None


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
