"""The place of the lake, as configurations name it: a folder, or the url of an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator

from tidegate.contracts.errors import InvalidValue
from tidegate.state.lake.place import Place, problem_of


def _place(value: object) -> Place:
    if isinstance(value, Place):
        return value
    if not isinstance(value, str | Path) or not str(value).strip():
        raise InvalidValue("no folder is named", "name a folder, such as ./lake, or a url, such as s3://bucket/lake")
    if str(value).startswith("~"):
        raise InvalidValue("~ is not expanded", "write the full path, such as /home/NAME/lake")
    place = Place.of(value)
    if (problem := problem_of(place)) is not None:
        raise problem
    return place


LakePlace = Annotated[
    Place,
    PlainValidator(_place, json_schema_input_type=Path),
    PlainSerializer(str),
    Field(examples=["./lake", "s3://bucket/lake"]),
]
"""A folder, or `s3://`, `gs://` or `az://` with a bucket; any other url is refused."""
