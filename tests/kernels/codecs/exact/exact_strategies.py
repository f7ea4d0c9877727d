"""Draws decimals, dates and times: of every size that their types have, before 1970 too, and nulls."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.values import schema_of

DECIMALS = ((38, 18), (38, 37), (19, 0), (18, 18), (9, 2), (1, 1))
"""Precisions and scales, those among them of which nothing is before the point."""
TYPES = {f"d{p}_{s}": f"decimal({p},{s})" for p, s in DECIMALS} | {
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
}
FIELDS: dict[str, Any] = {**TYPES, "inside": TYPES}
SCHEMA = schema_of(FIELDS)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Decimals of the type DECIMAL(precision, scale)."""
    exact = Context(prec=precision)
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-scale, exact))


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{f"d{p}_{s}": decimals(p, s) for p, s in DECIMALS},
    "day": st.dates(),
    "moment": st.datetimes(timezones=st.just(UTC)),
    "local": st.datetimes(),
}
_NULLABLE = {name: st.none() | values for name, values in _FIELDS.items()}
objects = st.fixed_dictionaries({**_NULLABLE, "inside": st.none() | st.fixed_dictionaries(_NULLABLE)})
"""Rows of FIELDS."""


def json_of(value: Any) -> str:
    """The value in JSON, as its type says."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{chr(34)}{name}{chr(34)}:{json_of(each)}' for name, each in value.items())}}}"
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        return str(value)
    return "null" if value is None else f'"{value}"'
