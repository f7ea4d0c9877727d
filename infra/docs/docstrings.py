"""Docstrings are written for people who read the code: what Markdown would take for markup in them is plain text."""

from __future__ import annotations

import re
from typing import Any

import griffe

QUOTED = re.compile(r"(`[^`]*`)")


class PlainText(griffe.Extension):
    """Leaves what stands in backticks as it is."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """The object's docstring has no tags and no quotes."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)


def plain(text: str) -> str:
    """`<name>` is not a tag, and a line that begins with a greater-than sign is not a quotation."""
    parts = QUOTED.split(text)
    parts[::2] = [re.sub(r"^( *)>", r"\1&gt;", part.replace("<", "&lt;"), flags=re.MULTILINE) for part in parts[::2]]
    return "".join(parts)
