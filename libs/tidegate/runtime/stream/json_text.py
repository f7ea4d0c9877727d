"""Structs of DataFrames as the text of JSON objects, and back: to equal values, whatever the session's settings are."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_EXACT_TIMES = {"timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME, "timeZone": "UTC"}
"""Otherwise Spark would write timestamps with milliseconds, and with offsets of the session's time zone in minutes;
those before the time of standard offsets have seconds. With `timeParserPolicy=LEGACY` it would read the digits of a
second as whole milliseconds.
"""
_KEYS = (StringType, IntegralType, FractionalType, BooleanType)
"""Types of keys of maps whose text in JSON can be cast to them. Spark writes dates and times as numbers, and of a
binary key where it was in memory.
"""


def json_of(struct: Column) -> Column:
    """Return the structs as text."""
    return F.to_json(struct, _EXACT_TIMES)


def value_of(text: Column, kind: DataType) -> Column:
    """Return the values of that type, of which `json_of` wrote the text."""
    return _with_keys(F.from_json(text, _with_text_as_keys(kind), _EXACT_TIMES), kind)


def maps_without_text(kind: DataType, path: str = "") -> Iterator[str]:
    """Yield where there are maps whose keys are not known again from their text in JSON: the names that lead there."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from maps_without_text(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ArrayType):
        yield from maps_without_text(kind.elementType, path)
    elif isinstance(kind, MapType):
        yield from maps_without_text(kind.valueType, path) if isinstance(kind.keyType, _KEYS) else (path,)


def _with_text_as_keys(kind: DataType) -> DataType:
    """Return the type with text as the keys of maps: Spark reads no other keys of JSON."""
    if isinstance(kind, StructType):
        fields = [StructField(each.name, _with_text_as_keys(each.dataType), each.nullable) for each in kind.fields]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_with_text_as_keys(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(StringType(), _with_text_as_keys(kind.valueType), kind.valueContainsNull)
    return kind


def _with_keys(value: Column, kind: DataType) -> Column:
    """Return the values with the keys of their type instead of text."""
    if kind == _with_text_as_keys(kind):
        return value
    if isinstance(kind, StructType):
        fields = [_with_keys(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        inside = kind.elementType
        return F.transform(value, lambda each: _with_keys(each, inside))
    assert isinstance(kind, MapType), "no other type has keys in it"
    of_key, of_value = kind.keyType, kind.valueType
    values = F.transform_values(value, lambda _, each: _with_keys(each, of_value))
    return F.transform_keys(values, lambda key, _: key.cast(of_key))
