"""The folders in which Tidegate keeps its downloads and the data of its broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

_CHECKOUT = Path(__file__).resolve().parents[4]


def project_root() -> Path:
    """Return the checkout that this package runs from; the working directory if it was installed as a wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else Path.cwd()


def home() -> Path:
    """Return the folder `TIDEGATE_HOME`, or by default `.tidegate` in the project."""
    chosen = os.environ.get("TIDEGATE_HOME")
    return Path(chosen) if chosen else project_root() / ".tidegate"


def jars(kind: Literal["spark", "broker"]) -> Path:
    """Return the folder of the jars that `make setup` downloads: for a Spark session or for the embedded broker."""
    return home() / "jars" / kind
