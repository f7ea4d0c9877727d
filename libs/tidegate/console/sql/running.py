"""Runs a query in a process of its own, which ends at a deadline."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from threading import BoundedSemaphore

import pyarrow as pa

from tidegate.console.sql.process import ERRORS, Request
from tidegate.console.sql.views import OperatorViews
from tidegate.contracts.errors import Unavailable, UserError

DEADLINE_S = 30.0
"""How long a query may take, with the start of its process."""

AT_A_TIME = 2
_PLACES = BoundedSemaphore(AT_A_TIME)


def run(query: str, operators: Sequence[OperatorViews], rows: int, deadline_s: float = DEADLINE_S) -> pa.Table:
    """Return at most `rows` rows of the query's result.

    Raise UserError if it is refused, fails, or needs too much time or memory; StateError if a file of a log is missing;
    EngineError if the lake does not answer; Unavailable if too many queries run.
    """
    if not _PLACES.acquire(blocking=False):
        raise Unavailable("too many queries run", value=AT_A_TIME, remedy="try again when they have ended")
    try:
        return _answer(Request(query=query, operators=operators, rows=rows), deadline_s)
    finally:
        _PLACES.release()


def _answer(request: Request, deadline_s: float) -> pa.Table:
    command = [sys.executable, "-m", "tidegate.console.sql.process"]
    remedy = "narrow it down with WHERE, or use `tidegate sql`, which has no limits"
    try:
        ended = subprocess.run(command, input=pickle.dumps(request), capture_output=True, timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise UserError("the query takes too long", value=f"more than {deadline_s:g} s", remedy=remedy) from None
    if (kind := ERRORS.get(ended.returncode)) is not None:
        problem, value, advice = json.loads(ended.stdout)
        raise kind(problem, value=value, remedy=advice)
    if ended.returncode:
        value = f"its process ended with {ended.returncode}"
        raise UserError("the query needs too much memory or time", value=value, remedy=remedy)
    return pa.ipc.open_stream(ended.stdout).read_all()
