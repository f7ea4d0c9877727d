"""Finding a Java of a supported version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tidegate.contracts.errors import UserError

OLDEST_JAVA = 17
_REMEDY = f"install a Java {OLDEST_JAVA} or later (for example OpenJDK) and put it on PATH, or point JAVA_HOME to it"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_command() -> str:
    """Return the path of `java`: that of JAVA_HOME, else the first on PATH. Raise UserError if missing or too old."""
    command = _located()
    version = _version(command)
    if version < OLDEST_JAVA:
        raise UserError(
            f"Java {version} is too old: Spark and Kafka need {OLDEST_JAVA} or later", value=command, remedy=_REMEDY
        )
    return command


def _located() -> str:
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        return str(Path(java_home) / "bin" / "java")
    command = shutil.which("java")
    if command is None:
        raise UserError("Java was not found", value=f"PATH={os.environ.get('PATH', '')}", remedy=_REMEDY)
    return command


def _version(command: str) -> int:
    try:
        output = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError as cause:
        raise UserError(f"Java does not run: {cause.strerror}", value=command, remedy=_REMEDY) from cause
    found = _VERSION.search(output)
    if found is None:
        raise UserError("Java does not print its version", value=f"{command}: {output.strip()[:200]}", remedy=_REMEDY)
    return int(found.group(1))
