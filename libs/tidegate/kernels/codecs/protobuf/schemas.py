"""Protobuf schemas: what their message types are as Arrow columns.

Google's own compiler reads the text of a `.proto` file, in a process of its own, because it writes what is wrong to the
standard error. What has no column of its own (repeated fields, maps, a message that contains itself, one without
fields, and those whose JSON is special) is the column of its JSON text.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.extras import require

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_REMEDY = 'write the text of a .proto file, such as syntax = "proto3"; message Flight { int32 delay = 1; }'
_NO_COLUMN = frozenset(f"google.protobuf.{name}" for name in ("Any", "FieldMask", "ListValue", "Struct", "Value"))
"""Types of messages whose JSON is not an object of their fields."""


@lru_cache(maxsize=1024)
def read_schema(text: str, imports: tuple[tuple[str, str], ...] = ()) -> FileDescriptor:
    """Return what a `.proto` file describes. Raise InvalidValue if it is none; MissingExtra.

    `imports`: the texts of files that it may import, beside Google's own, each behind its name.
    """
    require("grpc_tools")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, own = DescriptorPool(), _name_beside({name for name, _ in imports})
    for file in FileDescriptorSet.FromString(_compiled(own, text, imports)).file:
        pool.Add(file)
    return pool.FindFileByName(own)


def _name_beside(imports: Collection[str]) -> str:
    """Return a name for the file that none of its imports has."""
    return next(name for name in (f"schema{'_' * more}.proto" for more in count()) if name not in imports)


def _compiled(own: str, text: str, imports: Iterable[tuple[str, str]]) -> bytes:
    with TemporaryDirectory() as made:
        folder, found = Path(made).resolve() / "files", Path(made).resolve() / "found"
        for name, content in (*imports, (own, text)):
            _write(folder, name, content)
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        command = [*compiler, f"--descriptor_set_out={found}", own]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            problems = [line.rpartition(f"{own}:")[2] for line in done.stderr.splitlines() if f"{own}:" in line]
            raise InvalidValue(f"not a schema of Protobuf: {(problems or [done.stderr])[0].strip()}", _REMEDY)
        return found.read_bytes()


def _write(folder: Path, name: str, content: str) -> None:
    """Write the file; raise InvalidValue if its name is none, or leads out of the folder."""
    try:
        file = (folder / name).resolve()
        if not file.is_relative_to(folder):
            raise InvalidValue(f"not a schema of Protobuf: it would import {name}", _REMEDY)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise InvalidValue(f"not a schema of Protobuf: it would import {name!r}", _REMEDY) from None


def message_of(file: FileDescriptor, name: str) -> Descriptor:
    """Return the message type with that full name; raise InvalidValue if the file has none."""
    try:
        found = file.pool.FindMessageTypeByName(name)
    except KeyError:
        found = None
    if found is None or found.file is not file:
        known = ", ".join(each.full_name for each in file.message_types_by_name.values())
        raise InvalidValue(f"the schema has no message {name}", f"name one of {known}" if known else _REMEDY)
    return found


def message_at(file: FileDescriptor, path: list[int]) -> Descriptor | None:
    """Return the message type to which these indexes lead, the outermost first; None if there is none."""
    inside, found = list(file.message_types_by_name.values()), None
    for index in path:
        if index >= len(inside):
            return None
        found = inside[index]
        inside = list(found.nested_types)
    return found


def columns_of(message: Descriptor) -> pa.Schema:
    """Return the columns of the fields. Raise InvalidValue if there are none."""
    if not message.fields:
        raise InvalidValue(f"message {message.full_name} has no fields", "name a message with fields")
    return pa.schema(_fields(message, frozenset({message.full_name})))


def _fields(message: Descriptor, around: frozenset[str]) -> list[pa.Field]:
    return [pa.field(field.name, _arrow(field, around), True) for field in message.fields]


def _arrow(field: FieldDescriptor, around: frozenset[str]) -> pa.DataType:
    inner = field.message_type
    if field.is_repeated or (inner is not None and not _has_columns(inner, around)):
        return pa.large_string()
    return _ARROW[field.type] if inner is None else pa.struct(_fields(inner, around | {inner.full_name}))


def _has_columns(message: Descriptor, around: frozenset[str]) -> bool:
    return bool(message.fields) and message.full_name not in around | _NO_COLUMN


DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM = range(1, 15)
SFIXED32, SFIXED64, SINT32, SINT64 = range(15, 19)
"""The types of fields, as descriptors number them."""

_ARROW: dict[int, Any] = {
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    **dict.fromkeys((INT64, SINT64, SFIXED64), pa.int64()),
    **dict.fromkeys((INT32, SINT32, SFIXED32), pa.int32()),
    **dict.fromkeys((UINT64, FIXED64), pa.uint64()),
    **dict.fromkeys((UINT32, FIXED32), pa.uint32()),
    BOOL: pa.bool_(),
    STRING: pa.string(),
    BYTES: pa.binary(),
    ENUM: pa.string(),
}

_VERIFY = 2
"""The number of the feature that text must be UTF-8."""


def is_checked_text(field: FieldDescriptor) -> bool:
    """Return whether the field is text that must be UTF-8 wherever it occurs: a string, but not one of proto2."""
    return bool(field.type == STRING and field._GetFeatures().utf8_validation == _VERIFY)


_ALIKE = (
    (INT32, UINT32, INT64, UINT64, BOOL),
    (INT32, ENUM),
    (SINT32, SINT64),
    (STRING, BYTES),
    (FIXED32, SFIXED32),
    (FIXED64, SFIXED64),
)
"""Types of which one may be read as the other, as Protobuf's guide says."""


def conflict(written: Descriptor, read: Descriptor, wanted: pa.StructType) -> str | None:
    """Return what the wanted fields cannot take of those that are written; None if nothing.

    `wanted`: columns of the message type that is read, or parts of them.
    """
    return _conflict(written, read, wanted, set())


def _conflict(written: Descriptor, read: Descriptor, wanted: pa.DataType, seen: set[Any]) -> str | None:
    """`wanted`: the type of the message's column; one that is no struct is text of all fields."""
    if not pa.types.is_struct(wanted):
        if (written.full_name, read.full_name) in seen:
            return None
        seen.add((written.full_name, read.full_name))
    for field in read.fields:
        given, column = written.fields_by_number.get(field.number), _inside(wanted, field.name)
        if given is None or column is None:
            continue
        if given.is_repeated != field.is_repeated or not _is_alike(given.type, field.type):
            return f"field {given.name} ({given.number}) is {described(given)}, and is read as {described(field)}"
        inner = field.message_type
        if inner is not None and (found := _conflict(given.message_type, inner, column, seen)):
            return found
    return None


def _inside(wanted: pa.DataType, name: str) -> pa.DataType | None:
    """Return the type of a field of the column; None if it is not wanted."""
    if not pa.types.is_struct(wanted):
        return wanted
    at = wanted.get_field_index(name)
    return wanted.field(at).type if at >= 0 else None


def _is_alike(written: int, read: int) -> bool:
    return written == read or any(written in alike and read in alike for alike in _ALIKE)


def described(field: FieldDescriptor) -> str:
    """Return the type of the field as a message names it."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if field.is_repeated else name
