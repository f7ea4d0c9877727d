"""How a rule is taken out of its tagged statement: the program runs on, without the rule.

Fragments of code are compared as syntax, whatever their line breaks and quotes, and only within the statement itself,
not in the blocks that it holds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.rules.tags import Statement, Tagged, first_line, tagged


@dataclass(frozen=True)
class Removal:
    """`change` takes the rule out of the statement with the rule's tag, or with `slug/way`; `words` describe it."""

    words: str
    change: Callable[[Tagged], None]
    way: str = ""

    def applied_to(self, source: str, line: int) -> str:
        """Return the source without the rule that the statement in that line keeps.

        Raise ValueError if that changes nothing.
        """
        lines = source.splitlines(keepends=True)
        start, end = _around(source, line)
        return "".join([*lines[:start], self.rewritten(source, line), "\n", *lines[end:]])

    def rewritten(self, source: str, line: int) -> str:
        """Return the code of the statement of the module that holds that line, without the rule.

        Raise ValueError if that changes nothing.
        """
        start, end = _around(source, line)
        code = "".join(source.splitlines(keepends=True)[start:end])
        tree = ast.parse("\n" * start + code)
        self.change(tagged(tree, line))
        after = ast.unparse(ast.fix_missing_locations(tree))
        if after == _unchanged(code):
            raise ValueError(f"{self.words} changes nothing")
        return after


def _around(source: str, line: int) -> tuple[int, int]:
    """Return from which to which line the statement of the module reaches that holds the line: a slice of lines."""
    [around] = ((start, end) for start, end in _extents(source) if start < line <= end)
    return around


@cache
def _extents(source: str) -> tuple[tuple[int, int], ...]:
    body = ast.parse(source).body
    return tuple((first_line(statement) - 1, statement.end_lineno or statement.lineno) for statement in body)


@cache
def _unchanged(code: str) -> str:
    return ast.unparse(ast.parse(code))


def deleted(way: str = "") -> Removal:
    """The statement is not there."""
    return instead("pass", way)


def instead(code: str, way: str = "") -> Removal:
    """Other statements are in its place."""

    def change(found: Tagged) -> None:
        found.block[found.index : found.index + 1] = _statements(code)

    return Removal(f"instead: {code}", change, way)


def preceded(code: str, way: str = "") -> Removal:
    """Other statements run before it."""

    def change(found: Tagged) -> None:
        found.block[found.index : found.index] = _statements(code)

    return Removal(f"before it: {code}", change, way)


def followed(code: str, way: str = "") -> Removal:
    """Other statements run after it."""

    def change(found: Tagged) -> None:
        found.block[found.index + 1 : found.index + 1] = _statements(code)

    return Removal(f"after it: {code}", change, way)


def outside(way: str = "") -> Removal:
    """The statement and those that follow it run behind the block that holds them."""

    def change(found: Tagged) -> None:
        assert found.outer is not None
        outer, index = found.outer, found.index
        outer.block[outer.index + 1 : outer.index + 1] = found.block[index:]
        del found.block[index:]

    return Removal("outside of its block", change, way)


def unwrapped(way: str = "") -> Removal:
    """The statements of its block run without it."""

    def change(found: Tagged) -> None:
        assert isinstance(found.statement, ast.With)
        found.block[found.index : found.index + 1] = found.statement.body

    return Removal("its block alone", change, way)


def condition(code: str, way: str = "") -> Removal:
    """An `if` or `while` goes by another condition."""

    def change(found: Tagged) -> None:
        assert isinstance(found.statement, ast.If | ast.While)
        found.statement.test = _expression(code)

    return Removal(f"condition: {code}", change, way)


def value(code: str, way: str = "") -> Removal:
    """A `return` or an assignment has another value."""

    def change(found: Tagged) -> None:
        assert isinstance(found.statement, ast.Return | ast.Assign | ast.AnnAssign)
        found.statement.value = _expression(code)

    return Removal(f"value: {code}", change, way)


def argument(name: str, code: str, way: str = "") -> Removal:
    """The one keyword argument of that name has another value."""

    def change(found: Tagged) -> None:
        keywords = (node for node in _nodes(found.statement) if isinstance(node, ast.keyword))
        [keyword] = (keyword for keyword in keywords if keyword.arg == name)
        keyword.value = _expression(code)

    return Removal(f"{name}={code}", change, way)


def replaced(old: str, new: str, way: str = "") -> Removal:
    """An expression, which is there once, is another one."""

    def change(found: Tagged) -> None:
        [(holder, field, index)] = _holders(found.statement, ast.dump(_expression(old)))
        if index is None:
            setattr(holder, field, _expression(new))
        else:
            getattr(holder, field)[index] = _expression(new)

    return Removal(f"{old} -> {new}", change, way)


def dropped(part: str, way: str = "") -> Removal:
    """An operand, element, entry or argument, which is there once, is not.

    `part` is its code; of a keyword argument `name=`, and of an entry with a constant key `'key':`.
    """

    def change(found: Tagged) -> None:
        if part.endswith("="):
            _drop_keyword(found.statement, part[:-1])
        elif part.endswith(":"):
            _drop_entry(found.statement, ast.dump(_expression(part[:-1])))
        else:
            _drop_operand(found.statement, ast.dump(_expression(part)))

    return Removal(f"without {part}", change, way)


def _drop_keyword(statement: Statement, name: str) -> None:
    calls = (node for node in _nodes(statement) if isinstance(node, ast.Call))
    [(call, keyword)] = ((call, keyword) for call in calls for keyword in call.keywords if keyword.arg == name)
    call.keywords.remove(keyword)


def _drop_entry(statement: Statement, key: str) -> None:
    dicts = (node for node in _nodes(statement) if isinstance(node, ast.Dict))
    [(found, index)] = (
        (each, index) for each in dicts for index, node in enumerate(each.keys) if node and ast.dump(node) == key
    )
    del found.keys[index], found.values[index]


def _drop_operand(statement: Statement, part: str) -> None:
    [(holder, field, index)] = _holders(statement, part)
    if isinstance(holder, ast.BinOp):
        _put(statement, holder, holder.right if field == "left" else holder.left)
        return
    assert index is not None, "neither operand nor element"
    del getattr(holder, field)[index]
    if isinstance(holder, ast.Dict):
        del holder.keys[index]
    if isinstance(holder, ast.BoolOp) and len(holder.values) == 1:
        _put(statement, holder, holder.values[0])


def _put(statement: Statement, old: ast.AST, new: ast.expr) -> None:
    for holder in _nodes(statement):
        for field, content in ast.iter_fields(holder):
            if content is old:
                setattr(holder, field, new)
            elif isinstance(content, list):
                setattr(holder, field, [new if each is old else each for each in content])


def _holders(statement: Statement, dumped: str) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield where an expression stands: the node that holds it, the field, and the place if that is a list."""
    for holder in _nodes(statement):
        for field, content in ast.iter_fields(holder):
            for index, node in enumerate(content) if isinstance(content, list) else [(None, content)]:
                if isinstance(node, ast.expr) and ast.dump(node) == dumped:
                    yield holder, field, index


def _nodes(statement: Statement) -> Iterator[ast.AST]:
    """Yield the nodes of the statement without those of other statements in its blocks."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from ast.walk(child)


def _expression(code: str) -> ast.expr:
    if code.startswith("*"):
        return _starred(code)
    return ast.parse(code, mode="eval").body


def _starred(code: str) -> ast.expr:
    elements = ast.parse(f"[{code}]", mode="eval").body
    assert isinstance(elements, ast.List)
    return elements.elts[0]


def _statements(code: str) -> list[Statement]:
    return list(ast.parse(code).body)
