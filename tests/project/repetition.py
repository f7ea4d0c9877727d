"""Finds code that is written twice: the same statements in two places, whatever the names and constants in them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

LINES = 8
"""How many lines two places share at least."""
_LITERALS = ast.Constant | ast.Name | ast.Attribute | ast.Dict | ast.Tuple | ast.List | ast.Set | ast.expr_context


class Run(NamedTuple):
    """Consecutive statements: the function or class that holds them, or that they begin with, and how many lines."""

    place: str
    line: int
    end: int
    lines: int


def repetitions(sources: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return the pairs of places that share `LINES` lines or more, and how many lines they share.

    `sources` has the text of each module by its path. What only says something is not compared: imports, docstrings,
    declarations without code, and tables of literals in modules and classes.
    """
    alike: defaultdict[int, list[Run]] = defaultdict(list)
    for path, source in sources.items():
        for place, block in _blocks(ast.parse(source), path):
            for shape, run in _runs(place, block):
                alike[shape].append(run)
    found: dict[tuple[str, str], int] = {}
    for runs in alike.values():
        for one, other in combinations(sorted(runs), 2):
            if one.place != other.place or one.end < other.line:
                pair = one.place, other.place
                found[pair] = max(found.get(pair, 0), min(one.lines, other.lines))
    return found


def _blocks(node: ast.AST, place: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the lists of statements within the node, each with the function or class around it."""
    in_function = not isinstance(node, ast.Module | ast.ClassDef)
    for _, block in ast.iter_fields(node):
        if isinstance(block, list):
            statements = [child for child in block if isinstance(child, ast.stmt)]
            yield place, [child for child in statements if not _only_says(child, in_function)]
            for child in block:
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                    yield from _blocks(child, _place(place, child))


def _runs(place: str, block: list[ast.stmt]) -> Iterator[tuple[int, Run]]:
    """Yield every run of statements of the block that has enough lines, with its shape."""
    measured = [(_shape(statement), _first_line(statement), statement.end_lineno or 0) for statement in block]
    for begin, (_, line, _) in enumerate(measured):
        shape, lines = 0, 0
        for added, first, end in measured[begin:]:
            shape, lines = hash((shape, added)), lines + end - first + 1
            if lines >= LINES:
                yield shape, Run(_place(place, block[begin]), line, end, lines)


def _first_line(node: ast.stmt) -> int:
    return min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))


def _place(around: str, node: ast.AST) -> str:
    """Return the name of a function or class, or the place around another node."""
    return f"{around}:{node.name}" if isinstance(node, ast.ClassDef | ast.FunctionDef) else around


def _shape(node: ast.AST) -> int:
    """Return a number that nodes have in common if they differ in names, constants and docstrings alone."""
    return hash((type(node), *(_shape(child) for child in ast.iter_child_nodes(node) if not _is_text(child))))


def _only_says(node: ast.stmt, in_function: bool) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return all(_only_says(statement, isinstance(node, ast.FunctionDef)) for statement in node.body)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        is_table = node.value is None or all(isinstance(part, _LITERALS) for part in ast.walk(node.value))
        return is_table and not in_function
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or _is_text(node)


def _is_text(node: ast.AST) -> bool:
    """Return whether the node is a docstring, or an ellipsis in place of a body."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
