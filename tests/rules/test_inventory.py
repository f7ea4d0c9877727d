"""The inventory of rules is true: its tests exist, and its removals take something out."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.rules.inventory import RULES
from tests.rules.rule import Chapter, Removal, Rule
from tests.rules.trial import ROOT

pytestmark = pytest.mark.fast

HERE = [rule for rule in RULES if not rule.later]
REMOVALS = [removal for rule in HERE for removal in rule.removals]


def by_name(rule: Rule) -> str:
    return rule.name


def test_every_rule_is_there_once() -> None:
    assert [name for name, count in Counter(rule.name for rule in RULES).items() if count > 1] == []


def test_every_chapter_of_the_protocol_has_its_rules() -> None:
    assert {rule.chapter for rule in HERE} == set(Chapter)


@pytest.mark.parametrize("rule", HERE, ids=by_name)
def test_every_rule_has_tests_that_exist_and_can_be_taken_out(rule: Rule) -> None:
    assert rule.tests and rule.removals
    assert [test for test in rule.tests if test not in functions(test.partition("::")[0])] == []


def test_a_rule_that_comes_later_has_nothing_to_try_yet() -> None:
    assert [rule.name for rule in RULES if rule.later and (rule.tests or rule.removals)] == []


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.text.strip()[:60])
def test_every_removal_changes_one_place_and_leaves_a_program(removal: Removal) -> None:
    changed = removal.applied_to((ROOT / removal.file).read_text())
    assert removal.instead != removal.text
    ast.parse(changed)


@cache
def functions(file: str) -> frozenset[str]:
    """The node ids of the file's test functions."""
    body = ast.parse((ROOT / file).read_text()).body
    return frozenset(f"{file}::{node.name}" for node in body if isinstance(node, ast.FunctionDef))
