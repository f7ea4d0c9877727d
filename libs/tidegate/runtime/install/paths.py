"""The folders in which Tidegate keeps its downloads and the data of its broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

_CHECKOUT = Path(__file__).resolve().parents[4]


def is_checkout() -> bool:
    """Return True if this package runs from a checkout, False if it was installed as a wheel."""
    return (_CHECKOUT / "pyproject.toml").is_file()


def project_root() -> Path:
    """Return the checkout that this package runs from; the working directory if it was installed as a wheel."""
    return _CHECKOUT if is_checkout() else Path.cwd()


def setup_remedy() -> str:
    """Return what to do if something that the set-up installs is missing."""
    return "run `make setup`" if is_checkout() else "run `tidegate setup`"


def home() -> Path:
    """Return the folder `TIDEGATE_HOME`, or by default `.tidegate` in the project."""
    chosen = os.environ.get("TIDEGATE_HOME")
    return Path(chosen) if chosen else project_root() / ".tidegate"


def s3_home() -> Path:
    """Return the folder of what the set-up downloads for lakes on S3."""
    return home() / "s3"


def jars(kind: Literal["spark", "broker", "s3a"]) -> Path:
    """Return the folder of the jars that the set-up downloads: for Spark, the embedded broker, or Spark with S3."""
    return (s3_home() if kind == "s3a" else home() / "jars") / kind
