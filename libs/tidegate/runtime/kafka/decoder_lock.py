"""Makes kafka-python compile its message decoders in one thread at a time.

kafka-python 3 compiles a decoder when the first message of a kind arrives, and meanwhile replaces the class of the
message's structure by a stand-in. If two threads do so at once, one of them compiles against the stand-in. From then on
no message of that kind can be read in the process: its reader dies, and every request of the kind times out.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

from kafka.protocol.schemas.fields.struct import StructField

_compiling = RLock()
_compiled_decode_from = StructField.compiled_decode_from


def _one_at_a_time(struct: StructField, version: int, **how: Any) -> Any:
    with _compiling:
        return _compiled_decode_from(struct, version, **how)


def serialise_compilation() -> None:
    """Put a lock around kafka-python's compilation of decoders, for the whole process."""
    StructField.compiled_decode_from = _one_at_a_time
