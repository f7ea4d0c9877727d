"""An amount of money a day, as configurations write it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from tidegate.contracts.errors import InvalidValue

_TEXT = re.compile(r"(\d{1,9}(?:\.\d{1,4})?) ?USD/day")


def _usd(value: object) -> float:
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None or float(found[1]) == 0:
        raise InvalidValue("it is not an amount of money a day", "write it like 1 USD/day or 0.50 USD/day")
    return float(found[1])


DailyCost = Annotated[
    float,
    BeforeValidator(_usd, json_schema_input_type=str),
    PlainSerializer(lambda usd: f"{usd:.4f}".rstrip("0").rstrip(".") + " USD/day", return_type=str, when_used="json"),
    Field(examples=["1 USD/day"]),
]
