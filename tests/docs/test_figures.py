"""The figures of the benchmarks are the same on every page, and their bounds are those that the benchmarks check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import BOUNDS, Bound
from tests.docs.pages import DOCS, ROOT

pytestmark = pytest.mark.fast

LIMIT = re.compile(r"([<>])= ([\d.,]+)( million)?")
FAST_AND_SLOW = re.compile(r"(\d+) ms(?:(?! ms)[^|])* on a fast machine[^|]*?(\d+) ms on a slow one")
README, COMPARISON = ROOT / "README.md", DOCS / "comparison.md"


def rows(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows that end with the name of a benchmark, each with its cells."""
    for name, cells in re.findall(r"^\| (?=.*`(?:tidegate bench )?(\w+)` \|$)(.*) \|$", page.read_text(), re.MULTILINE):
        if name in BOUNDS:
            yield name, [cell.strip() for cell in cells.split(" | ")]


def bounds(cell: str) -> list[Bound]:
    """The bounds of a cell, such as `<= 20; <= 2`."""
    return [_bound(*found) for found in LIMIT.findall(cell)]


def _bound(side: str, number: str, million: str) -> Bound:
    value = float(number.replace(",", "")) * (1_000_000 if million else 1)
    return Bound(least=value) if side == ">" else Bound(most=value)


PRINTED = [(name, bound) for name, cells in rows(README) for bound in bounds(cells[2])]


def test_the_readme_prints_bounds() -> None:
    assert len(PRINTED) > 20


@pytest.mark.parametrize(("name", "bound"), PRINTED, ids=str)
def test_a_bound_of_the_readme_is_one_that_the_benchmark_checks(name: str, bound: Bound) -> None:
    assert bound in BOUNDS[name].values()


def test_every_bound_of_the_comparisons_with_others_is_in_the_readme() -> None:
    with_others = {name: found["ratio"] for name, found in BOUNDS.items() if "ratio" in found}
    assert set(with_others.items()) <= set(PRINTED)


def test_the_comparison_has_the_figures_of_the_readme() -> None:
    printed: dict[str, set[str]] = {}
    for name, cells in rows(README):
        printed.setdefault(name, set()).update(_figures(cells[1]))
    compared = [(name, figure) for name, cells in rows(COMPARISON) for cell in cells[1:-1] for figure in _figures(cell)]
    assert len(compared) > 10
    assert [(name, figure) for name, figure in compared if figure not in printed[name]] == []


def test_a_batch_of_1000_records_takes_the_same_time_on_every_page() -> None:
    pages = (README, COMPARISON, DOCS / "budget.md")
    printed = [FAST_AND_SLOW.findall(page.read_text()) for page in pages]
    assert printed[0] and printed == [printed[0]] * 3


def _figures(cell: str) -> list[str]:
    return re.findall(r"\d[\d,]*(?:\.\d+)?", cell)
