"""Compressed bodies of requests, as agents that ship logs send them."""

from __future__ import annotations

import io
import zlib

from millwheel.connect.connectors.http.bodies import BodyError
from millwheel.connect.sources.files.compression import Gzip

ENCODINGS = "gzip, deflate, zstd"
_RAW = -15  # Fixed: deflate without zlib's header, which some clients send


class TooLargeError(Exception):
    """The body has more bytes than a request may have."""


class EncodingError(Exception):
    """The body has an encoding that is not known here."""


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """The body of a request with this ``Content-Encoding``. Never more than ``most`` bytes are
    unpacked. Raises TooLargeError, EncodingError for another encoding, BodyError for a body that is
    not what it says."""
    names = [
        name
        for name in encoding.lower().replace(" ", "").split(",")
        if name not in ("", "identity")
    ]
    if not names:
        return body
    unpack = _UNPACK.get(names[0].removeprefix("x-"))
    if len(names) > 1 or unpack is None:
        raise EncodingError(
            f"Content-Encoding: {encoding} is not taken; send {ENCODINGS}, or no encoding"
        )
    try:
        content = unpack(body, most + 1)
    except (OSError, zlib.error) as error:
        raise BodyError(
            f"the body is not {names[0]}, as its Content-Encoding says: {error}"
        ) from error
    if len(content) > most:
        raise TooLargeError
    return content


def _gzip(body: bytes, most: int) -> bytes:
    stream = Gzip(io.BytesIO(body))
    content = stream.read(most)
    if stream.damage or (body and not content and not body.startswith(b"\x1f\x8b")):
        raise BodyError(
            f"the body is not gzip, as its Content-Encoding says: {stream.damage or 'it is empty'}"
        )
    return content


def _deflate(body: bytes, most: int) -> bytes:
    try:
        return _inflated(body, zlib.MAX_WBITS, most)
    except zlib.error:
        return _inflated(body, _RAW, most)


def _inflated(body: bytes, bits: int, most: int) -> bytes:
    stream = zlib.decompressobj(bits)
    content = stream.decompress(body, most)
    if not stream.eof and len(content) < most:
        raise zlib.error("it is cut off")
    return content


def _zstd(body: bytes, most: int) -> bytes:
    import pyarrow as pa

    return bytes(pa.CompressedInputStream(pa.BufferReader(body), "zstd").read(most))


_UNPACK = {"gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
