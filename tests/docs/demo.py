"""The demo of the documentation after some days, with its broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidegate.application.target import load
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.install.paths import jars


def target(home: Path) -> str:
    """The demo's application, as commands name it."""
    return f"{home}/demo/app.py:app"


@contextmanager
def demo_of(home: Path, days: int) -> Iterator[Application]:
    """Run the demo for so many days, then its broker again; yield its application, which finds it."""
    (home / "jars").mkdir()
    for kind in ("spark", "broker"):
        (home / "jars" / kind).symlink_to(jars(kind))  # type: ignore[arg-type]
    command = [sys.executable, "-m", "tidegate.cli.main", "demo", "--days", str(days)]
    shown = subprocess.run(
        command, env=os.environ | {"TIDEGATE_HOME": str(home)}, capture_output=True, text=True, check=True
    ).stdout
    assert "console " in shown.splitlines()[-1]
    with (
        Broker.start(home / "demo" / "kafka", jars("broker")) as broker,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TIDEGATE_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap)
        yield load(Path(target(home)))
