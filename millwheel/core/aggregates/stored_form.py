"""The stored form of accumulators: msgpack, with sets of values as an extension of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millwheel.core.aggregates.families.distinct_values import Chunks, Distinct
from millwheel.errors import CorruptionError

_SET = 1  # Fixed: the code of a set among the extension types of msgpack


class StoredForm:
    """Encodes and decodes plain data that may contain sets. ``chunks`` gives the entries of the
    sets of the present value; by default there are none, and sets are stored with the value."""

    def __init__(self, chunks: Callable[[], Chunks] | None = None) -> None:
        self._chunks = chunks
        self.encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=self._encoded).encode
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(ext_hook=self.decoded).decode

    def _encoded(self, value: Any) -> msgspec.msgpack.Ext:
        if type(value) is not Distinct:
            raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
        return msgspec.msgpack.Ext(_SET, self._form_of(value))

    def _form_of(self, value: Distinct) -> bytes:
        return value.whole_form() if self._chunks is None else value.stored(self._chunks)

    def decoded(self, code: int, data: memoryview) -> Any:
        """The value that an extension of msgpack stands for."""
        if code != _SET:
            raise CorruptionError(
                f"extension {code} of msgpack stands for nothing that is stored here"
            )
        return Distinct.from_stored(data, self._chunks)


WHOLE = StoredForm()
"""Sets of any size are part of the value."""
