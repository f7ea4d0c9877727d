"""What MkDocs is told beyond mkdocs.yml: folders in the navigation, and the parts of pages that come from the code.

A page says `<!-- tidegate: WHAT ARGUMENTS -->` on a line of its own:

    options KIND           the options of a kind of operator, those that every kind takes in a table below
    configuration NAME     the options of the file (Application), of its part spark or telemetry
    section FILE TITLE     the chapter of that title in a Markdown file of the repository
    live                   the options of each kind of operator that may change while it holds something
    commands               the reference of the command
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "libs"), str(ROOT)]

warnings.filterwarnings("ignore", "(read_text|open_text) is deprecated")  # kafka-python reads its schemas so

from infra.docs.commands import command_reference  # noqa: E402
from infra.docs.options import option_table  # noqa: E402
from tidegate.contracts.config.operator_config import OperatorConfig  # noqa: E402
from tidegate.operators.registry import config_type, kinds  # noqa: E402
from tidegate.runtime.configuration.application import Application, SparkConfig, TelemetryConfig  # noqa: E402
from tidegate.runtime.configuration.changes import LIVE  # noqa: E402

DIRECTIVE = re.compile(r"^<!-- tidegate: (\w+) ?(.*?) -->$", re.MULTILINE)
PARTS = {"application": Application, "spark": SparkConfig, "telemetry": TelemetryConfig}


def on_config(config: Any) -> Any:
    """Folders in the navigation stand for their pages."""
    config.nav = _unfolded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with what its directives ask for."""
    return written(markdown)


def written(markdown: str) -> str:
    """The Markdown with every directive replaced by what it asks for."""
    return DIRECTIVE.sub(lambda found: DIRECTIVES[found[1]](found[2]), markdown)


def _unfolded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, list):
        return [_unfolded(each, docs) for each in entry]
    if isinstance(entry, dict):
        return {title: _unfolded(below, docs) for title, below in entry.items()}
    return _pages(docs, entry) if entry.endswith("/") else entry


def _pages(docs: Path, folder: str) -> list[str]:
    """The pages of the folder by name; a README begins it."""
    pages = sorted((docs / folder).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    return [folder + page.name for page in pages]


def _options(kind: str) -> str:
    model, common = config_type(kind), set(OperatorConfig.model_fields)
    own = option_table(model, set(model.model_fields) - common)
    return f"{own}\n\n### Options of every operator\n\n{option_table(model, common)}"


def _live() -> str:
    """A row for each kind."""
    rows = [f"| {kind} | {_in_order(config_type(kind).live)} |" for kind in kinds()]
    return "\n".join(["| kind | options |", "| --- | --- |", *rows, f"| every kind | {_in_order(LIVE)} |"])


def _in_order(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _section(wanted: str) -> str:
    file, _, title = wanted.partition(" ")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", (ROOT / file).read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{file} has no chapter {title!r}")
    return found[1].strip()


DIRECTIVES: dict[str, Callable[[str], str]] = {
    "options": _options,
    "configuration": lambda name: option_table(PARTS[name]),
    "section": _section,
    "live": lambda _: _live(),
    "commands": lambda _: command_reference(),
}
