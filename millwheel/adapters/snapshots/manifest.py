"""The byte format of a manifest, and the names of the files in a shard's snapshot folder.

    manifest-<number>.json             a published snapshot, as JSON that carries its own checksum
    <token>-<commit>.<attempt>-<name>  a blob: the file ``name`` of the checkpoint that was
                                       published, or not yet, under ``token`` after ``commit``;
                                       ``attempt`` is random

A blob's name contains its owner's token and its age, so that collecting never touches the uploads
of a newer owner.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import msgspec
from xxhash import xxh3_128_hexdigest

from millwheel.adapters.ports import Manifest
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import CorruptionError

_MANIFEST = re.compile(r"manifest-([0-9]{10,})\.json")
_BLOB = re.compile(r"([0-9]{1,20})-([0-9]{1,20})\.[0-9a-f]{8}-[A-Za-z0-9_.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """The order of snapshots: by token, then by commit."""

    token: int
    last_commit: int


class _Sealed(msgspec.Struct):
    checksum: str
    manifest: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_sealed = msgspec.json.Decoder(_Sealed).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode


def rank(manifest: Manifest) -> Rank:
    """The key by which manifests are ordered by age."""
    return Rank(manifest.token, manifest.last_commit)


def manifest_name(number: int) -> str:
    """The file name of a manifest."""
    return f"manifest-{number:010d}.json"


def manifest_number(name: str) -> int:
    """The number in a manifest's name; 0 for any other name."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else 0


def blob_prefix(of: Rank) -> str:
    """The prefix of the names of all blobs of one attempt to publish."""
    return f"{of.token}-{of.last_commit}.{os.urandom(4).hex()}-"


def blob_rank(name: str) -> Rank | None:
    """The rank of the snapshot for which a blob was made; None when ``name`` is not a blob."""
    match = _BLOB.fullmatch(name)
    return Rank(int(match[1]), int(match[2])) if match else None


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON, sealed with a checksum of its body."""
    body = _encode(manifest)
    return _encode(_Sealed(xxh3_128_hexdigest(body), msgspec.Raw(body))) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """The inverse of :func:`encode_manifest`; CorruptionError with the reason when the bytes are
    not a manifest."""
    try:
        sealed = _decode_sealed(data)
        body = bytes(sealed.manifest)
        if xxh3_128_hexdigest(body) != sealed.checksum:
            raise CorruptionError("it fails its checksum")
        manifest = _decode_manifest(body)
    except DAMAGE as ex:
        raise CorruptionError(f"it is not a manifest: {ex}") from ex
    for name, (blob, _, _) in manifest.files.items():
        if not _PLAIN.fullmatch(name) or not _BLOB.fullmatch(blob):
            raise CorruptionError(f"it names the file {name!r} as {blob!r}, which cannot be")
    return manifest
