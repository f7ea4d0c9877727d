"""Call the kernels as `tidegate setup` does, and print which of those that Python code calls were not called: JSON."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import tidegate
from tidegate.cli.develop.setup import call_kernels
from tidegate.operators.registry import kinds

DECORATORS = {"compiled", "compiled_in_place", "inlined"}
ROOT = Path(tidegate.__path__[0])


def main() -> None:
    """Print the kernels that were called, and those that were not."""
    call_kernels(kinds())
    found: dict[str, list[str]] = {"called": [], "uncalled": []}
    for name, kernel in sorted(kernels_called_from_python().items()):
        called = getattr(kernel, "called", kernel)  # of a part, what calls by Python run
        found["called" if called.signatures else "uncalled"].append(name)
    json.dump(found, sys.stdout)


def kernels_called_from_python() -> dict[str, Any]:
    """Return the kernels that code outside of kernels names, by their names."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        if "tidegate.kernels" not in source:
            continue
        module = import_module(".".join(("tidegate", *path.relative_to(ROOT).with_suffix("").parts)))
        for value in _named(module, ast.parse(source)):
            if hasattr(value, "py_func"):
                found[f"{value.py_func.__module__}.{value.py_func.__name__}".removeprefix("tidegate.")] = value
    return found


def _named(module: ModuleType, node: ast.AST) -> Iterator[Any]:
    """Yield the module's values that the code names, as `name` or `module.name`, except within kernels."""
    if any(isinstance(mark, ast.Name) and mark.id in DECORATORS for mark in getattr(node, "decorator_list", ())):
        return
    if isinstance(node, ast.Name):
        yield getattr(module, node.id, None)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield getattr(getattr(module, node.value.id, None), node.attr, None)
    for child in ast.iter_child_nodes(node):
        yield from _named(module, child)


if __name__ == "__main__":
    main()
