"""Download of the jars of Spark and of the Kafka broker, with the Ivy that PySpark ships.

Only `ivy.xml` lists the jars and their versions, and `ivy-s3.xml` those for lakes on S3; a download is needed when the
folders differ from the lists.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from tidegate.contracts.errors import EngineError, UserError
from tidegate.contracts.extras import require
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import home, s3_home

SETTINGS_VARIABLE = "TIDEGATE_IVY_SETTINGS"
_LIST = Path(__file__).with_name("ivy.xml")
_S3_LIST = Path(__file__).with_name("ivy-s3.xml")
_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_FETCHED = re.compile(r"\[SUCCESSFUL ] [^#]+#(?P<name>[^;]+);(?P<version>[^!]+)!")
_CAUSE = re.compile(r"access error|FAILED|Exception")
_REMEDY = (
    "check the network and run it again (what was fetched is kept); "
    "behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
    f"for a mirror set {SETTINGS_VARIABLE} to an Ivy settings file"
)


def listed(jar_list: Path = _LIST) -> dict[str, set[str]]:
    """Return the file names of the listed jars, by folder (`spark`, `broker`)."""
    names: dict[str, set[str]] = {}
    for jar in ElementTree.parse(jar_list).iter("dependency"):
        names.setdefault(jar.attrib["conf"], set()).add(f"{jar.attrib['name']}-{jar.attrib['rev']}.jar")
    return names


def missing(folder: Path, jar_list: Path = _LIST) -> list[str]:
    """Return the listed jars that are missing, as `kind/file name`; all of a kind if its folder has unlisted jars."""
    return [
        f"{kind}/{name}" for kind, names in listed(jar_list).items() for name in sorted(_lacking(folder / kind, names))
    ]


def _lacking(folder: Path, names: set[str]) -> set[str]:
    found = {jar.name for jar in folder.glob("*.jar")}
    return names - found if found <= names else names


def retrieve(folder: Path, jar_list: Path = _LIST, note: Callable[[str], None] = print) -> None:
    """Download the listed jars into the folder, and remove all others; `note` takes a line for each download.

    Raise EngineError if a download fails.

    The jars are gathered next to the folder, which is replaced at the end: an interruption leaves no partial jar in it.
    """
    work = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(work / "jars", ignore_errors=True)
    output = list(_noted(_ivy(work, jar_list), note))
    if missing(work / "jars", jar_list):
        raise _failure(missing(work / "jars", jar_list), output)
    shutil.rmtree(folder, ignore_errors=True)
    (work / "jars").rename(folder)
    shutil.rmtree(work)


def _failure(lacking: list[str], output: list[str]) -> EngineError:
    causes = [line.strip() for line in output if _CAUSE.search(line)]
    value = f"{len(lacking)} missing, among them {lacking[0]}"
    return EngineError("the jars could not be fetched", value="\n    ".join([value, *causes[:1]]), remedy=_REMEDY)


def _ivy(work: Path, jar_list: Path) -> Iterator[str]:
    """Run Ivy and yield the lines that it prints."""
    settings = os.environ.get(SETTINGS_VARIABLE, str(_SETTINGS))
    command = [java_command(), "-jar", str(ivy_jar()), "-settings", settings, "-cache", str(work / "cache")]
    pattern = str(work / "jars" / "[conf]" / "[artifact]-[revision].[ext]")
    with subprocess.Popen(
        [*command, "-ivy", str(jar_list), "-retrieve", pattern],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from process.stdout


def ivy_jar() -> Path:
    """Return the path of the Ivy jar that PySpark ships. Raise UserError if PySpark is not installed or incomplete."""
    require("pyspark")
    pyspark = Path(str(getattr(importlib.util.find_spec("pyspark"), "origin", ""))).parent
    found = [*pyspark.glob("jars/ivy-*.jar")]
    if not found:
        raise UserError("PySpark, which ships Ivy, is incomplete", value=pyspark, remedy="install it again")
    return found[0]


def _noted(lines: Iterator[str], note: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines unchanged, and note the name and version of each jar that was downloaded."""
    for line in lines:
        fetched = _FETCHED.search(line)
        if fetched:
            note(f"  {fetched['name']} {fetched['version']}")
        yield line


def install(note: Callable[[str], None], *, s3: bool = False) -> None:
    """Download missing jars; `note` takes lines of progress. Raise UserError or EngineError if that fails.

    `s3`: also those with which Spark reads lakes on S3.
    """
    _install(home() / "jars", _LIST, "(about 65 MB) for Spark and the Kafka broker", note)
    if s3:
        _install(s3_home(), _S3_LIST, "(13 MB) with which Spark reads lakes on S3", note)


def _install(folder: Path, jar_list: Path, what: str, note: Callable[[str], None]) -> None:
    if not missing(folder, jar_list):
        return
    note(f"Fetching {sum(map(len, listed(jar_list).values()))} jars {what}")
    started = time.monotonic()
    retrieve(folder, jar_list, note)
    note(f"Fetched the jars in {time.monotonic() - started:.0f} s (download)")
