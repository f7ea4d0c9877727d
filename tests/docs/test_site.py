"""The site: it is built without a warning, loads nothing from other hosts, and matches the code."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

import tidegate
import tidegate.spark
from infra.docs.hooks import ROOT
from infra.docs.options import options
from infra.docs.pictures import FOLDER, drawn
from tests.docs.pages import DOCS
from tests.docs.test_blocks import name_of
from tidegate.cli.main import COMMANDS
from tidegate.operators.registry import config_type, kinds
from tidegate.runtime.configuration.application import Application

OF_A_BROWSER = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?((?:https?:)?//[^\">]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = re.search(r"^docs:.*\n\t@(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command is not None
    program = command[1].replace("$(BIN)", str(Path(sys.executable).parent)).replace("build/docs", str(folder))
    built = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_has_every_page(site: Path) -> None:
    wanted = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert {path.with_name("index.html") if path.name == "README.html" else path for path in wanted} <= built


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    assert {url for page in site.rglob("*.html") for url in OF_A_BROWSER.findall(page.read_text())} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles) == []


@pytest.mark.parametrize("kind", kinds())
def test_every_option_of_an_operator_is_on_its_page(site: Path, kind: str) -> None:
    shown = text_of(site / "operators" / f"{kind}.html")
    every = [option.place for option in options(config_type(kind).model_json_schema())]
    assert [place for place in every if f"<td><code>{place}</code></td>" not in shown] == []
    assert {name for name, field in config_type(kind).model_fields.items() if _is_in_files(field)} <= set(every)


def _is_in_files(field: FieldInfo) -> bool:
    """Return False for what only operators on DataFrames have."""
    return not any(isinstance(each, SkipJsonSchema) for each in field.metadata)


def test_every_option_of_the_file_and_every_command_is_in_the_reference(site: Path) -> None:
    configuration = text_of(site / "reference" / "configuration.html")
    assert [name for name in Application.model_fields if f"<code>{name}</code>" not in configuration] == []
    commands = text_of(site / "reference" / "commands.html")
    assert [name for name in COMMANDS if f">tidegate {name}<" not in commands] == []


def test_the_reference_shows_every_public_name_and_every_method_of_the_interface(site: Path) -> None:
    shown = set(re.findall(r'id="([\w.]+)"', text_of(site / "reference" / "python.html")))
    public = [tidegate.spark.Query, *(getattr(tidegate, name) for name in tidegate.__all__)]
    names = [name_of(each) for each in public]
    names += [f"tidegate.spark.{name}" for name in tidegate.spark.__all__ if name != "Query"]
    names += [f"{name_of(each)}.{method}" for each in public if is_of_programs(each) for method in methods(each)]
    assert [name for name in names if name not in shown] == []


def is_of_programs(thing: Any) -> bool:
    """Return whether it is a type whose methods programs call."""
    return isinstance(thing, type) and thing.__module__.startswith("tidegate.application.")


def methods(of: type) -> list[str]:
    """The names of the type's public methods, inherited ones among them."""
    return [name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))]


def test_the_pictures_show_what_the_operators_do() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.svg")} == drawn()


def test_every_directive_on_a_page_is_replaced(site: Path) -> None:
    assert [
        page for page in site.rglob("*.html") if "tidegate: " in "".join(re.findall("<!--.*?-->", page.read_text()))
    ] == []


def text_of(page: Path) -> str:
    """What the page says, with its tags."""
    return unescape(page.read_text())
