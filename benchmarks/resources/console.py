"""The pages of the console over a log of 100,000 batches and 10 million held keys in 16 partitions.

The console is a process of its own, which is asked as a browser asks it. No broker answers, and no page is asked for
twice at a time. A batch is committed before each request, as a service does. The slider moves over the batches on the
page of the operator. Seconds of a processor, `..._cpu_s`, are those of the console for one page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import numpy as np

from benchmarks.long_log import NAME, TOPIC, application_in, batch, make, opened
from tidegate.runtime.configuration.application import Application

PARTITIONS, COMMITS, HELD = 16, 100_000, 10_000_000
TAIL, TIMES = 640, 20

_FILE = """
application: app
lake: ./lake
state: ./state
keep_output: forever
control: null
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
operators: {{{name}: {{kind: suppression, input: {topic}, output: out, until: {{time_limit: 1h}}}}}}
"""


def measure(say: Any) -> dict[str, float]:
    """Return the 95th percentile of each page in seconds, that of the slider, and the peak of memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        application = application_in(Path(folder))
        make(application, partitions=PARTITIONS, commits=COMMITS, held=HELD // PARTITIONS, tail=TAIL)
        say(f"{COMMITS:,} commits and {HELD:,} held keys made in {time.perf_counter() - began:.0f} s")
        return measured(application, Path(folder), say)


def measured(application: Application, folder: Path, say: Any) -> dict[str, float]:
    """Return the figures of a console of the application, whose log was made in the folder."""
    log = opened(application)
    with console(folder) as (process, get):

        def ask(path: str) -> None:
            newest = log.newest()
            assert newest is not None, "the log was made"
            log.commit(batch(newest, newest.batch % PARTITIONS), [])
            began = time.perf_counter()
            get(path)
            seconds.append(time.perf_counter() - began)

        found, seconds = dict[str, float](), list[float]()
        batches = range(COMMITS - 1, COMMITS - 1 - TAIL, -TAIL // TIMES)
        asked = {name: [path] * TIMES for name, path in pages().items()}
        asked["slider"] = [f"/operators/{NAME}?batch={number}" for number in batches]
        for name, paths in asked.items():
            get(paths[0])  # the first request is not counted
            seconds.clear()
            before = _cpu_s(process)
            for path in paths:
                ask(path)
            found[f"{name}_p95_s"] = float(np.percentile(seconds, 95))
            found[f"{name}_cpu_s"] = (_cpu_s(process) - before) / len(paths)
            say(f"{name}: {found[f'{name}_p95_s']:.3f} s, {found[f'{name}_cpu_s']:.3f} s of a processor")
        worst = max(found[f"{name}_p95_s"] for name in pages())
        return {**found, "worst_page_p95_s": worst, "memory_mb": _peak_mb(process)}


def pages() -> dict[str, str]:
    """Return the addresses of all pages that read logs, by name."""
    operator, before = f"/operators/{NAME}", COMMITS - TAIL // 2
    return {
        "overview": "/",
        "operator": operator,
        "operator_earlier": f"{operator}?batch={before}",
        "charts": f"{operator}/series",
        "held": f"{operator}/held?partition=3",
        "held_earlier": f"{operator}/held?partition=3&batch={before}",
        "emissions": f"{operator}/emissions",
        "late": f"{operator}/late",
        "key": f"{operator}/key?key={7:016d}&partition=3",
        "actions": f"{operator}/act",
        "plan": f"{operator}/plan",
        "sql": "/sql",
    }


@contextmanager
def console(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], None]]]:
    """Serve the application in the folder; yield the process, and a function that gets a page."""
    (folder / "app.yaml").write_text(_FILE.format(name=NAME, topic=TOPIC))
    command = [sys.executable, "-m", "tidegate.cli.main", "console", "app.yaml", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "its output is a pipe"
        found = re.search(r"(http://[^/]+)/login\?token=\S+", process.stdout.readline())
        assert found is not None, "the console prints the address of a login"
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        _get(browser, found[0])
        yield process, lambda path: _get(browser, found[1] + path)
        process.terminate()


def _get(browser: OpenerDirector, address: str) -> None:
    with browser.open(address) as answer:
        answer.read()


def _cpu_s(process: subprocess.Popen[str]) -> float:
    """Return the seconds of a processor that the process has used."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _peak_mb(process: subprocess.Popen[str]) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None, "Linux says the peak"
    return int(found[1]) / 1_024
