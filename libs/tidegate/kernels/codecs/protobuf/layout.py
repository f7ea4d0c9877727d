"""Which slots of the kernel hold what of a message type."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


class Column(NamedTuple):
    """A wanted field of the message, or of a message in it.

    `path`: the names that lead to it. `slot`: where its value is, or whether its message is there; those of its fields
    follow, up to `after`.
    """

    field: pa.Field
    described: FieldDescriptor
    path: tuple[str, ...]
    slot: int
    after: int
    inside: tuple[Column, ...]

    @property
    def is_text(self) -> bool:
        """Return whether the column is the JSON text of the value."""
        return bool(pa.types.is_large_string(self.field.type))

    @property
    def may_be_null(self) -> bool:
        """Return whether the column is null where the field is absent. If not, it has the field's default."""
        return bool(self.described.has_presence)


def layout_of(message: Descriptor, wanted: pa.Schema) -> tuple[Column, ...]:
    """Return the wanted fields of the message. `wanted`: columns of the message type, or parts of them."""
    return tuple(_columns(message, pa.struct(wanted), (), 0))


def _columns(message: Descriptor, wanted: pa.StructType, path: tuple[str, ...], slot: int) -> Iterator[Column]:
    """Yield the columns. Those of a oneof follow each other, so that their slots can be cleared at once."""
    for described in sorted(message.fields, key=_first_of_choice):
        if wanted.get_field_index(described.name) < 0:
            continue
        field = wanted.field(described.name)
        where, inside = (*path, described.name), tuple[Column, ...]()
        if pa.types.is_struct(field.type):
            inside = tuple(_columns(described.message_type, field.type, where, slot + 1))
        after = inside[-1].after if inside else slot + 1
        yield Column(field, described, where, slot, after, inside)
        slot = after


def _first_of_choice(field: FieldDescriptor) -> int:
    choice = field.containing_oneof
    return int(field.index if choice is None else min(each.index for each in choice.fields))


def every(columns: Collection[Column]) -> Iterator[Column]:
    """Yield the columns and those inside of them."""
    for column in columns:
        yield column
        yield from every(column.inside)
