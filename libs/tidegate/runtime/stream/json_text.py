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


def value_of(text: Column, kind: DataType, written: DataType | None = None) -> Column:
    """Return the values of that type, of which `json_of` wrote the text.

    `written`: the type with strings in places where the text has a string with the JSON text of the value.
    """
    read = _with_text_as_keys(written or kind)
    return _typed(F.from_json(text, read, _EXACT_TIMES), read, kind)


def bare_value_of(text: Column, kind: DataType, written: DataType | None = None) -> Column:
    """Return the values like `value_of`, also those that are no structs."""
    return value_of(F.concat(F.lit("["), text, F.lit("]")), ArrayType(kind), ArrayType(written or kind))[0]


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


def _typed(value: Column, read: DataType, kind: DataType) -> Column:
    """Return the values, which Spark has read as another type, with their own: keys of maps, and text in strings."""
    if read == kind:
        return value
    if isinstance(read, StringType):
        return bare_value_of(value, kind)
    if isinstance(read, StructType) and isinstance(kind, StructType):
        pairs = zip(read.fields, kind.fields, strict=True)
        fields = [
            _typed(value.getField(one.name), one.dataType, other.dataType).alias(one.name) for one, other in pairs
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(read, ArrayType) and isinstance(kind, ArrayType):
        one, other = read.elementType, kind.elementType
        return F.transform(value, lambda each: _typed(each, one, other))
    assert isinstance(read, MapType) and isinstance(kind, MapType), "only keys and text in strings are read as others"
    key, one, other = kind.keyType, read.valueType, kind.valueType
    values = F.transform_values(value, lambda _, each: _typed(each, one, other))
    return F.transform_keys(values, lambda text, _: text.cast(key))
