"""One thread at a time compiles how kafka-python reads a message.

kafka-python 3 compiles that when the first message of a kind comes. Meanwhile it gives the message's structure another
class; two threads that do so at once compile one against the stand-in of a class, and from then on no message of that
kind can be read in the process: its reader dies, and every request of the kind waits until its time is over.
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


def compile_in_turn() -> None:
    """See to it that kafka-python compiles in one thread at a time, in this process."""
    StructField.compiled_decode_from = _one_at_a_time
