"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of code: its page, by its path in the repository, the line, the language, and the text."""

    page: str
    line: int
    language: str
    text: str


def pages() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Every block of code of a page, in order."""
    return blocks_of(page.read_text(), str(page.relative_to(ROOT)))


def blocks_of(text: str, page: str = "") -> Iterator[Block]:
    """Every block of the text, in order; one within a tab as it is shown, without the tab's indentation."""
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[2], dedent(found[3]))
