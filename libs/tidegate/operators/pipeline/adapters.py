"""Recorded scenarios are of single operators; those of chains are played on these in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ADAPTERS: dict[str, Callable[..., Any]] = {}
"""The adapters by the names of recorded scenarios."""
