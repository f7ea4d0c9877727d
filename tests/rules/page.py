"""The page that lists the rules: `python -m tests.rules.page` writes it from the inventory."""

from __future__ import annotations

from itertools import groupby

from tests.rules.inventory import RULES
from tests.rules.rule import Chapter
from tests.rules.trial import ROOT

PAGE = ROOT / "docs" / "reference" / "rules.md"
_HEAD = """\
# The rules by name

[The protocol](../protocol.md) explains these rules. The page of [deduplicate](../operators/deduplicate.md) has those of
the chapter before the last, and [decision 67](../decisions/0067-a-record-is-joined-or-leaves-alone-never-both.md)
those of the last one. Each rule has a name, and a comment marks the statements that keep it:
`grep -rn "rule: one-clock" libs` finds them. `make rules` removes each rule from the source in turn, and requires that
one of its tests fails. This page is written by `python -m tests.rules.page`.
"""


def text() -> str:
    """Return the text of the page."""
    order = list(Chapter)
    by_chapter = groupby(sorted(RULES, key=lambda rule: order.index(rule.chapter)), key=lambda rule: rule.chapter)
    parts = [
        f"\n## {chapter.value}\n\n| name | rule |\n| --- | --- |\n"
        + "".join(f"| `{rule.slug}` | {rule.name} |\n" for rule in rules)
        for chapter, rules in by_chapter
    ]
    return _HEAD + "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text())
