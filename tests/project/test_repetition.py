"""No code of the library is written twice, unless that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.repetition import repetitions

LIBRARY = Path(__file__).resolve().parents[2] / "libs" / "tidegate"

MEANT = {
    ("application/aggregates.py", "application/aggregates.py"): "editors show a function for each aggregate",
    **dict.fromkeys(
        (
            ("operators/suppression/reference.py", "operators/table_history/reference.py"),
            ("operators/stream_stream_join/reference.py", "operators/suppression/reference.py"),
            ("operators/stream_stream_join/reference.py", "operators/table_history/reference.py"),
        ),
        "references share no rules, so that a mistake in one is not in all of them",
    ),
    ("operators/stream_table_join/__init__.py", "operators/suppression/__init__.py"): "a kind's entry lists its parts",
}
"""The pairs of files that repeat each other on purpose, and why. The files say so, too."""

pytestmark = pytest.mark.fast


def test_no_two_places_of_the_library_share_eight_lines_unless_intended() -> None:
    sources = {str(path.relative_to(LIBRARY)): path.read_text() for path in LIBRARY.rglob("*.py")}
    found = {pair: lines for pair, lines in repetitions(sources).items() if _files(pair) not in MEANT}
    assert found == {}, "write it once; if the repetition is meant, say so there and in MEANT"


def test_every_intended_repetition_exists() -> None:
    for files in MEANT:
        sources = {file: (LIBRARY / file).read_text() for file in files}
        assert files in {_files(pair) for pair in repetitions(sources)}


TOTAL = '''
def total(rows):
    """Return the sum."""
    found = 0
    for row in rows:
        if row.is_late:
            continue
        found += row.value
    return found
'''
RENAMED = """
class Counter:
    def weight(boxes):
        result = 7
        for box in boxes:
            # a comment
            if box.broken:
                continue
            result += box.kilograms
        return result
"""


def test_the_same_statements_are_found_whatever_their_names_constants_and_comments() -> None:
    assert repetitions({"a": TOTAL, "b": RENAMED}) == {("a:total", "b:Counter:weight"): 8}


@pytest.mark.parametrize(
    ("fragment", "other"), [("is_late", "is_late()"), ("+=", "-="), ("continue", "break"), ("in rows", "in []")]
)
def test_different_statements_are_not_a_repetition(fragment: str, other: str) -> None:
    assert repetitions({"a": TOTAL, "b": TOTAL.replace(fragment, other)}) == {}


def test_repetitions_are_found_between_different_beginnings_and_ends() -> None:
    lines = "".join(f"    {name}({name})\n" for name in "abcdefgh")
    found = repetitions({"a": f"def one():\n{lines}    return 1\n", "b": f"def other():\n    x = 1\n{lines}"})
    assert found == {("a:one", "b:other"): 8}


def test_a_repetition_within_one_function_is_found() -> None:
    lines = "".join(f"    {name}({name})\n" for name in "abcdefgh")
    assert repetitions({"a": f"def one():\n{lines}    x = 1\n{lines}"}) == {("a:one", "a:one"): 8}


def test_declarations_are_not_a_repetition() -> None:
    fields = "".join(f"    {name}: int\n" for name in "abcdefgh")
    table = "X = (\n" + "    (1, 2),\n" * 8 + ")\n"
    errors = "".join(f'class {name}(Exception):\n    """An error."""\n' for name in "ABCD")
    assert repetitions(dict.fromkeys("ab", f"class Row:\n{fields}{table}{errors}")) == {}


def _files(pair: tuple[str, str]) -> tuple[str, str]:
    one, other = (place.partition(":")[0] for place in pair)
    return one, other
