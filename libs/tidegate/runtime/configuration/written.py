"""Values of options as a configuration file has them, for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tidegate.contracts.event_time import format_duration_ms, parse_duration_ms

_DURATION = re.compile(r"\d+ms", re.ASCII)


def written(value: Any) -> str:
    """Return the value as a configuration file has it, durations in their largest unit."""
    text: str = yaml.safe_dump(_readable(value), default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _readable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _readable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in value]
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return format_duration_ms(parse_duration_ms(value))
    return value
