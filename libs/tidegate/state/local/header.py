"""Read and write the header file of a local state: two checksummed slots.

A write goes to the older slot, so the newer one stays valid whatever happens to the write. The valid slot with the
highest sequence counts. A slot has, in little endian: magic (8 bytes), sequence (u64), length of the payload (u32),
CRC-32 of sequence and payload (u32), and the payload (JSON).
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from tidegate.state.local.machine import THIS_MACHINE, Machine
from tidegate.state.protocol_decisions import Header

SLOT_BYTES = 4_096
MAGIC = b"TIDEGATE"
_PREFIX = struct.Struct("<8sQII")


class HeaderFile:
    """The `header` file of a partition's state folder; used under the partition's lock.

    `folder` is the file descriptor of that folder. Writes go to it even if another folder has taken its name meanwhile.
    """

    def __init__(self, path: Path, folder: int | None = None, machine: Machine = THIS_MACHINE) -> None:
        self.path, self._machine = path, machine
        self._folder = folder
        self._sequence = 0

    def read(self) -> Header | None:
        """Return the newest valid header; None if there is none."""
        try:
            found = self.path.read_bytes()
        except FileNotFoundError:
            return None
        slots = [slot for place in (0, 1) if (slot := _decode(found[place * SLOT_BYTES : (place + 1) * SLOT_BYTES]))]
        if not slots:
            return None
        # rule: two-header-slots/newest
        self._sequence, header = max(slots, key=lambda slot: slot[0])
        return header

    def write(self, header: Header, *, synced: bool) -> None:
        """Write the header to the older slot; with `synced`, fsync it, so that it survives a loss of power."""
        sequence = self._sequence + 1
        # rule: two-header-slots/written
        place = sequence % 2 * SLOT_BYTES
        self._machine.write(self.path, _encode(sequence, header), place, folder=self._folder, synced=synced)
        self._sequence = sequence


def _encode(sequence: int, header: Header) -> bytes:
    payload = json.dumps(vars(header)).encode()
    slot = _PREFIX.pack(MAGIC, sequence, len(payload), _checksum(sequence, payload)) + payload
    if len(slot) > SLOT_BYTES:
        raise AssertionError("the header does not fit its slot")
    return slot.ljust(SLOT_BYTES, b"\0")


def _decode(slot: bytes) -> tuple[int, Header] | None:
    if len(slot) < _PREFIX.size:
        return None
    magic, sequence, length, checksum = _PREFIX.unpack_from(slot)
    payload = slot[_PREFIX.size : _PREFIX.size + length]
    # rule: two-header-slots/torn
    if magic != MAGIC or checksum != _checksum(sequence, payload):
        return None
    said = json.loads(payload)
    before = said.get("before")
    return sequence, Header(**said | {"layout": tuple(said["layout"]), "before": before and tuple(before)})


def _checksum(sequence: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(sequence.to_bytes(8, "little")))
