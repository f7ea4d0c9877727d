"""The metadata of batches, put together from what log entries and `meta` rows say.

An entry says what its batch changed; from time to time one says everything. So the newest metadata takes the entries
since that one, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from tidegate.contracts.errors import StateError
from tidegate.contracts.schema import BatchMeta, Document, after_document, is_complete
from tidegate.state.delta_log import log_entries


class Newest(NamedTuple):
    """The metadata of the newest batch, and the batch and version of the newest complete one."""

    meta: BatchMeta
    base: int
    version: int


def newest_metadata(log: Path, version: int) -> Newest | None:
    """Return the metadata of the newest batch up to the version; None where no batch is committed.

    StateError if an entry is missing that it needs.
    """
    documents = []
    for at, document in documents_before(log, version):
        documents.append(document)
        if is_complete(document):
            return Newest(metadata(reversed(documents)), document["batch"], at)
    if documents:
        raise StateError(
            "the operator log lacks the entries that its newest metadata builds upon",
            value=f"batch {documents[0]['batch']} builds upon batch {documents[0]['base']} in {log}",
            remedy="bring the log's _delta_log back from a copy",
        )
    return None


def documents_before(log: Path, version: int) -> Iterator[tuple[int, Document]]:
    """Return the versions and documents of the batches from the version down, newest first, as far as entries go."""
    while (actions := log_entries.read_actions(log, version)) is not None:
        if (document := log_entries.document_of(actions)) is not None:
            yield version, document
        version -= 1


def metadata(documents: Iterable[Document]) -> BatchMeta:
    """Return the metadata after the documents, which are in order and begin with a complete one."""
    return reduce(after_document, documents, None)  # type: ignore[return-value]
