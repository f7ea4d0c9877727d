"""The page that lists the functions of expressions: `python -m tests.expressions.page` writes it."""

from __future__ import annotations

from tests.rules.trial import ROOT
from tidegate.expressions.functions import GROUPS

PAGE = ROOT / "docs" / "reference" / "expressions.md"
_HEAD = """\
# Functions of expressions

Expressions of a [pipeline](../concepts/pipelines.md#steps-without-state) are SQL, as DuckDB evaluates it. They consist
of columns, fields (`weather.wind`), constants, comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `IS NULL`, `CASE`,
`CAST`, and of the functions below. Each of these gives the same result for the same arguments, everywhere and always,
so that a replay gives the same results. Functions that read the clock, random numbers, settings or files are not among
them, nor are aggregates. This page is written by `python -m tests.expressions.page`.

| for | names |
| --- | --- |
"""


def text() -> str:
    """Return the text of the page."""
    rows = [f"| {what} | {_listed(names)} |\n" for what, names in GROUPS.items()]
    return _HEAD + "".join(rows)


def _listed(names: str) -> str:
    return " ".join(f"`{name}`".replace("|", "\\|") for name in sorted(names.split()))


if __name__ == "__main__":
    PAGE.write_text(text())
