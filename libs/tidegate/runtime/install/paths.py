"""Where Tidegate keeps what it downloads and what its broker stores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

_CHECKOUT = Path(__file__).resolve().parents[4]


def project_root() -> Path:
    """The checkout this package runs from; the working directory where it was installed as a wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else Path.cwd()


def home() -> Path:
    """`TIDEGATE_HOME`, or `.tidegate` in the project."""
    chosen = os.environ.get("TIDEGATE_HOME")
    return Path(chosen) if chosen else project_root() / ".tidegate"


def jars(kind: Literal["spark", "broker"]) -> Path:
    """The folder of the jars that `make setup` retrieves: for a Spark session, or for the embedded broker."""
    return home() / "jars" / kind
