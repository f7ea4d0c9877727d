"""The inventory of rules agrees with the tags in the source, its tests exist, and its removals take something out."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.rules import page
from tests.rules.inventory import RULES
from tests.rules.removals import Removal, condition, deleted, dropped, followed, outside, replaced
from tests.rules.rule import Chapter, trials
from tests.rules.tags import SOURCE, places
from tests.rules.trial import ROOT

pytestmark = pytest.mark.fast

TAGGED = places(ROOT)
TRIALS = trials(RULES, TAGGED)

OTHERS = {"LOCK_SH", "ftruncate", "update_incremental"}
"""Attributes of other libraries that removals alone use."""


def test_every_rule_has_a_unique_slug_and_a_unique_name() -> None:
    for names in ([rule.slug for rule in RULES], [rule.name for rule in RULES]):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_chapter_of_the_protocol_has_its_rules() -> None:
    assert {rule.chapter for rule in RULES} == set(Chapter)


def test_every_tag_in_the_source_belongs_to_a_removal_and_every_removal_has_its_tag() -> None:
    assert {rule.tag_of(removal) for rule in RULES for removal in rule.removals} == set(TAGGED)


@pytest.mark.parametrize("chapter", Chapter, ids=lambda chapter: chapter.name.lower())
def test_every_rule_has_existing_tests_and_a_removal(chapter: Chapter) -> None:
    rules = [rule for rule in RULES if rule.chapter is chapter]
    assert [rule.slug for rule in rules if not (rule.tests and rule.removals)] == []
    named = [test for rule in rules for test in rule.tests]
    assert [test for test in named if test not in functions(test.partition("::")[0])] == []


@pytest.mark.parametrize("file", sorted({trial.place.file for trial in TRIALS}))
def test_every_removal_changes_its_statement_into_valid_code_that_names_only_what_exists(file: str) -> None:
    source, problems = (ROOT / file).read_text(), []
    known = bound(ast.parse(source)) | {*vars(builtins), "__file__"}
    for trial in (trial for trial in TRIALS if trial.place.file == file):
        try:
            after = ast.parse(trial.removal.rewritten(source, trial.place.line))
        except (AssertionError, SyntaxError, ValueError) as error:
            found = [str(error)]
        else:
            found = sorted(named(after) - known - bound(after) | attributes(after) - words_of_the_source() - OTHERS)
        problems += [f"{trial.rule.tag_of(trial.removal)}, line {trial.place.line}: {problem}" for problem in found]
    assert problems == []


def test_a_removal_that_names_what_is_gone_is_found() -> None:
    after = ast.parse(replaced("batch > mark", "was.gone_from_here(LIMIT)").applied_to(EXAMPLE, 7))
    assert named(after) - named(ast.parse(EXAMPLE)) == {"was", "LIMIT"}
    assert attributes(after) - words_of_the_source() == {"gone_from_here"}


def test_every_trial_occurs_once() -> None:
    counts = Counter((trial.rule.slug, trial.place, trial.removal.words) for trial in TRIALS)
    assert [key for key, count in counts.items() if count > 1] == []


def test_the_page_of_the_rules_is_written_from_the_inventory() -> None:
    assert page.PAGE.read_text() == page.text(), "write it with python -m tests.rules.page"


@pytest.mark.parametrize("chapter", [Chapter.DEDUPLICATE, Chapter.STREAM_STREAM_JOIN])
def test_the_rules_of_an_operator_are_named_by_its_readme(chapter: Chapter) -> None:
    readme = (ROOT / SOURCE / "operators" / chapter.name.lower() / "README.md").read_text()
    named = re.findall(r"\[`([a-z-]+)`\]", readme)
    assert sorted(named) == sorted(rule.slug for rule in RULES if rule.chapter is chapter)


EXAMPLE = """\
def settle(batches):
    with lock:
        # rule: first, second
        if batches and ready:
            publish(batches)
        # rule: third/answer
        return [batch for batch in batches if batch > mark]
"""


def test_a_tag_belongs_to_the_statement_below_it(tmp_path: Path) -> None:
    (tmp_path / SOURCE).mkdir(parents=True)
    (tmp_path / SOURCE / "example.py").write_text(EXAMPLE)
    found = {tag: [place.line for place in at] for tag, at in places(tmp_path).items()}
    assert found == {"first": [4], "second": [4], "third/answer": [7]}


@pytest.mark.parametrize(
    ("removal", "line", "expected"),
    [
        (condition("False"), 4, "if False:"),
        (dropped("ready"), 4, "if batches:"),
        (followed("wait()"), 5, "publish(batches)\n            wait()"),
        (deleted(), 5, "if batches and ready:\n            pass"),
        (dropped("batch > mark"), 7, "return [batch for batch in batches]"),
        (replaced("batch > mark", "True"), 7, "if True]"),
        (outside(), 7, "publish(batches)\n    return"),
    ],
    ids=lambda each: getattr(each, "words", None),
)
def test_a_removal_changes_only_its_statement(removal: Removal, line: int, expected: str) -> None:
    assert expected in removal.applied_to(EXAMPLE, line)


def test_a_removal_that_changes_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        replaced("mark", "mark").applied_to(EXAMPLE, 7)


def test_a_fragment_that_does_not_occur_exactly_once_is_an_error() -> None:
    for fragment in ("batch", "nothing"):
        with pytest.raises(ValueError, match="values to unpack"):
            replaced(fragment, "None").applied_to(EXAMPLE, 7)


@cache
def functions(file: str) -> frozenset[str]:
    """Return the node ids of the file's test functions."""
    body = ast.parse((ROOT / file).read_text()).body
    return frozenset(f"{file}::{node.name}" for node in body if isinstance(node, ast.FunctionDef))


def named(tree: ast.AST) -> set[str]:
    """Return the names whose values the code uses."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def attributes(tree: ast.AST) -> set[str]:
    """Return the attributes that the code uses."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def bound(tree: ast.AST) -> set[str]:
    """Return the names that the code gives to something."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.MatchAs(name=str(name))
            ):
                found.add(name)
            case ast.alias(name=name, asname=given):
                found.add(given or name.partition(".")[0])
    return found


@cache
def words_of_the_source() -> set[str]:
    """Return every word of the source: no attribute is used that is written nowhere else."""
    return {word for path in (ROOT / SOURCE).rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
