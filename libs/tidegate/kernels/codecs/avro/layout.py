"""Which slots of the kernel hold what of the reader's schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.kernels.codecs.avro.schemas import Schema, Type, logical, name_of, nullable


class Column(NamedTuple):
    """A wanted field of the reader's schema, or of a record in it.

    `names`: its own, and its aliases. `type`: that of the field without null; `nullable`: whether null is one of its
    types. `slot`: where its value is, or whether its record is there; those of its fields follow, up to `after`.
    `default`: None if there is none.
    """

    field: pa.Field
    names: tuple[str, ...]
    type: Type
    given: Type
    nullable: bool
    default: tuple[Any] | None
    slot: int
    after: int
    inside: tuple[Column, ...]

    @property
    def is_text(self) -> bool:
        """Return whether the column is the JSON text of the value."""
        return name_of(self.type) in ("array", "map", "union", "null")

    @property
    def meaning(self) -> str | None:
        """Return the logical type."""
        return logical(self.type)


def layout_of(schema: Schema, wanted: pa.Schema) -> tuple[Column, ...]:
    """Return the wanted fields of the schema, in its order. `wanted`: columns of the schema, or parts of them."""
    return tuple(_columns(schema, schema.record["fields"], pa.struct(wanted), 0))


def _columns(schema: Schema, fields: list[Mapping[str, Any]], wanted: pa.StructType, slot: int) -> Iterator[Column]:
    for each, names in zip(fields, _names(fields), strict=True):
        if wanted.get_field_index(each["name"]) >= 0:
            column = _column(schema, each, names, wanted.field(each["name"]), slot)
            slot = column.after
            yield column


def _names(fields: Collection[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the names of each field. A name that several have is that of the field itself, or an alias of the first."""
    taken = {field["name"] for field in fields}
    for field in fields:
        aliases = [alias for alias in field.get("aliases", ()) if alias not in taken]
        taken.update(aliases)
        yield field["name"], *aliases


def _column(schema: Schema, field: Mapping[str, Any], names: tuple[str, ...], arrow: pa.Field, slot: int) -> Column:
    given = schema.resolved(field["type"])
    inner = nullable(given)
    type = given if inner is None else schema.resolved(inner)
    inside: tuple[Column, ...] = ()
    if pa.types.is_struct(arrow.type):
        assert isinstance(type, Mapping)
        inside = tuple(_columns(schema, type["fields"], arrow.type, slot + 1))
    return Column(
        field=arrow,
        names=names,
        type=type,
        given=field["type"],
        nullable=inner is not None,
        default=(field["default"],) if "default" in field else None,
        slot=slot,
        after=inside[-1].after if inside else slot + 1,
        inside=inside,
    )


def every(columns: Collection[Column]) -> Iterator[Column]:
    """Yield the columns and those inside of them."""
    for column in columns:
        yield column
        yield from every(column.inside)
