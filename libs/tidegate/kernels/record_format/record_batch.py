"""The codec of Kafka record batches (magic 2), in one place.

Reading is in `record_decoder`, writing in `record_encoder`, single headers in `record_headers`.
"""

from tidegate.kernels.record_format.record_decoder import Decoded, decode
from tidegate.kernels.record_format.record_encoder import (
    EncodedBatch,
    Origin,
    OutgoingColumns,
    Stamp,
    encode,
)
from tidegate.kernels.record_format.record_headers import decode_headers, encode_headers, header_value

__all__ = [
    "Decoded",
    "EncodedBatch",
    "Origin",
    "OutgoingColumns",
    "Stamp",
    "decode",
    "decode_headers",
    "encode",
    "encode_headers",
    "header_value",
]
