"""Where the source keeps a rule: the comment `# rule: slug` stands on the line above the statement.

A rule that is kept in several ways has a tag for each, `# rule: slug/way`. A statement that keeps several rules has
their tags in one comment, with commas between. A tag may be at several statements.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = "libs/tidegate"
_MARK = "# rule: "

Statement = ast.stmt | ast.ExceptHandler


class Place(NamedTuple):
    """A tagged statement: its file, relative to the root, and its first line."""

    file: str
    line: int


class Tagged(NamedTuple):
    """A tagged statement in a tree, the block that holds it, and where the statement around that block stands."""

    statement: Statement
    block: list[Statement]
    outer: Tagged | None

    @property
    def index(self) -> int:
        """Return the position of the statement within its block."""
        return next(index for index, other in enumerate(self.block) if other is self.statement)


def places(root: Path) -> Mapping[str, tuple[Place, ...]]:
    """Return the tagged statements of the source below that root, by tag."""
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for path in sorted((root / SOURCE).rglob("*.py")):
        if _MARK in (source := path.read_text()):
            for tag, line in _tags(source):
                found[tag].append(Place(str(path.relative_to(root)), line))
    return {tag: tuple(at) for tag, at in found.items()}


def _tags(source: str) -> Iterator[tuple[str, int]]:
    """Yield each tag with the line of the code that follows it."""
    waiting: list[str] = []
    for number, line in enumerate(map(str.strip, source.splitlines()), 1):
        if line.startswith(_MARK):
            waiting += line.removeprefix(_MARK).split(", ")
        elif waiting and line and not line.startswith("#"):
            yield from ((tag, number) for tag in waiting)
            waiting = []


def tagged(tree: ast.Module, line: int) -> Tagged:
    """Return the statement that begins in that line. Raise ValueError if none does."""
    for found in _statements(tree, None):
        if first_line(found.statement) == line:
            return found
    raise ValueError(f"no statement begins in line {line}, below a tag")


def _statements(node: ast.AST, outer: Tagged | None) -> Iterator[Tagged]:
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(node, field, None)
        for statement in block if isinstance(block, list) else ():
            if isinstance(statement, ast.match_case):
                yield from _statements(statement, outer)
                continue
            yield (here := Tagged(statement, block, outer))
            yield from _statements(statement, here)


def first_line(statement: Statement) -> int:
    """Return the line in which the statement begins, decorators included."""
    return min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))
