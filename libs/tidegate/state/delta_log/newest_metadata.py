"""Rebuild the metadata of batches from documents in log entries.

Most entries have only what their batch changed; from time to time an entry has complete metadata. So reading the newest
metadata takes only the entries since the newest complete one, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, Document, after_document, is_complete
from tidegate.contracts.errors import StateError
from tidegate.state.delta_log import log_entries
from tidegate.state.delta_log.actions import Action
from tidegate.state.lake.port import Lake


class Newest(NamedTuple):
    """The metadata of the newest batch, and the batch (`base`) and version of the newest complete metadata."""

    meta: BatchMeta
    base: int
    version: int

    def after(self, version: int, entries: Iterable[Sequence[Action]]) -> Newest:
        """Return what it is after these entries, which follow `version`."""
        newest = self
        for at, actions in enumerate(entries, version + 1):
            if (document := log_entries.document_of(actions)) is None:
                continue
            meta = after_document(newest.meta, document)
            newest = Newest(meta, meta.batch, at) if is_complete(document) else newest._replace(meta=meta)
        return newest


def newest_metadata(log: Lake, version: int) -> Newest | None:
    """Return the metadata of the newest batch up to the version; None if no batch is committed.

    Raise StateError if an entry that it builds upon is missing.
    """
    documents = []
    for at, document in documents_before(log, version):
        documents.append(document)
        # rule: metadata-builds-up/read
        if is_complete(document):
            return Newest(metadata(reversed(documents)), document["batch"], at)
    # rule: metadata-required/read
    if documents:
        raise StateError(
            "the operator log lacks the entries that its newest metadata builds upon",
            value=f"batch {documents[0]['batch']} builds upon batch {documents[0]['base']} in {log.place}",
            remedy="restore the log's _delta_log from a copy",
        )
    return None


def documents_before(log: Lake, version: int) -> Iterator[tuple[int, Document]]:
    """Yield (version, document) of the batches from the version down, newest first, up to the first missing entry."""
    while (actions := log_entries.read_actions(log, version)) is not None:
        if (document := log_entries.document_of(actions)) is not None:
            yield version, document
        version -= 1


def metadata(documents: Iterable[Document]) -> BatchMeta:
    """Return the metadata after applying the documents in order; the first one must be complete."""
    return reduce(after_document, documents, None)  # type: ignore[return-value]
