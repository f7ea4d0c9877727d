"""What `import tidegate` offers: to a program, to a type checker, to an editor."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

pytestmark = pytest.mark.fast

SOURCE = Path(tidegate.__file__)


def names_for_type_checkers() -> set[str]:
    [block] = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    return {name.name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}


def test_type_checkers_see_the_names_that_programs_can_import() -> None:
    assert names_for_type_checkers() == set(tidegate.__all__) <= set(dir(tidegate))
    assert (SOURCE.parent / "py.typed").is_file()


@pytest.mark.parametrize("name", tidegate.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tidegate, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Supression'"):
        tidegate.Supression  # noqa: B018


def test_importing_tidegate_imports_nothing_else() -> None:
    program = "import sys, tidegate; print([name for name in sys.modules if name in ('pyarrow', 'numba', 'pyspark')])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["Config", "Rules"])
def test_a_renamed_class_is_still_importable_and_the_warning_names_the_new_one(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"Window{name} is deprecated; import WindowedAggregation{name}"):
        found = getattr(tidegate, f"Window{name}")
    assert found is getattr(tidegate, f"WindowedAggregation{name}")
