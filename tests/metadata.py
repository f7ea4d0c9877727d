"""Metadata for tests, described field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta, Counts, PartitionChange, PartitionMeta
from tidegate.contracts.log_schema import FORMAT

_KNOWN = {each.name for each in fields(PartitionMeta)}
_CHANGES = {each.name for each in fields(PartitionChange)}


def small_meta(**said: Any) -> BatchMeta:
    """The metadata of an early batch of an operator `op`, with these fields, as `described` takes them."""
    plain = BatchMeta(
        format=FORMAT,
        operator="op",
        table_id="t",
        epoch=1,
        batch=1,
        attempt="a",
        action="batch",
        clock=0,
        config="c",
    )
    return described(plain, **said)


def described(before: BatchMeta, **said: Any) -> BatchMeta:
    """`before` with these fields, those of partitions as {partition: value}: `next_offset={0: 7, 1: 9}`.

    Partitions that are new get offset 0; those with changes have counted nothing, unless it is said.
    """
    known = {name: said.pop(name) for name in _KNOWN & said.keys()}
    changes = {name: said.pop(name) for name in _CHANGES & said.keys()}
    partitions = dict(before.partitions)
    for partition, values in _by_partition(known).items():
        partitions[partition] = replace(partitions.get(partition, PartitionMeta(next_offset=0)), **values)
    changed = {p: PartitionChange(**{"counts": Counts()} | values) for p, values in _by_partition(changes).items()}
    return replace(before, partitions=partitions, changed=changed or before.changed, **said)


def of_each(meta: BatchMeta, name: str) -> dict[int, Any]:
    """A field of all partitions."""
    return {partition: getattr(known, name) for partition, known in meta.partitions.items()}


def _by_partition(columns: Mapping[str, Mapping[int, Any]]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for name, column in columns.items():
        for partition, value in column.items():
            found.setdefault(partition, {})[name] = value
    return found
