"""Reads one object, always the version with which it began.

The choice of the version is a decision, which is durable before anything is read. So every later
reader notices when the object was replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from millwheel.adapters.spaces.object_store import ObjectChangedError, ObjectStore
from millwheel.connect.sources.base import Chunk, FrameChunk, Reader
from millwheel.connect.sources.files.object_input import ObjectBytes
from millwheel.core.model.damage import checked
from millwheel.errors import ExhaustedError, SetupError, UnavailableError

log = logging.getLogger(__name__)
_T = TypeVar("_T")


class PinnedVersion(msgspec.Struct, frozen=True, array_like=True):
    """A version of an object, by the store's own tag. ``read``: all of it has been read."""

    tag: str
    size: int
    read: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = checked(
    msgspec.msgpack.Decoder(PinnedVersion).decode, "which version of an object is read"
)


class ObjectReader(Reader):
    """``open_version`` returns a reader of the bytes of one version. A ``followed`` object never
    finishes; once it is silent, event time advances without it, as with followed files."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        followed: bool,
        open_version: Callable[[ObjectBytes], Reader],
    ) -> None:
        self._store = store
        self._key = key
        self._name = f"{store.address.top}/{key}"
        self._followed = followed
        self._open_version = open_version
        self._version: PinnedVersion | None = None
        self._reader: Reader | None = None
        self._whole: Mapping[str, str] | None = None
        self._has_columns = True

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        payloads = [note for _, note in notes if note]
        self._version = _decode(payloads[0]) if payloads else None

    def read(self, position: int, max_records: int) -> Chunk:
        if (begun := self._begun(position)) is not None:
            return begun
        chunk = self._asked(lambda reader: reader.read(position, max_records))
        return Chunk([], [], position, caught_up=True) if chunk is None else self._with_note(chunk)

    def skip(self, position: int) -> Chunk | None:
        if (begun := self._begun(position)) is not None:
            return begun
        chunk = self._asked(lambda reader: reader.skip(position))
        return None if chunk is None else self._with_note(chunk)

    def _with_note(self, chunk: Chunk) -> Chunk:
        chunk.note = self._note(chunk.finished)
        chunk.finished, chunk.caught_up = (
            chunk.finished and not self._followed,
            chunk.finished and self._followed,
        )
        return chunk

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        if self._version is None or self._version.read or not self._has_columns:
            return None
        chunk = self._asked(
            lambda reader: reader.read_frame(position, max_bytes) if self._has_columns else None
        )
        if chunk is not None:
            chunk.note = self._note(chunk.finished)
            chunk.finished = chunk.finished and not self._followed
        return chunk

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        self._whole = fields
        self._has_columns = self._reader is None or self._reader.take_whole(fields)
        return self._has_columns

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _begun(self, position: int) -> Chunk | None:
        """The decision about the version, if it has not been made; an empty chunk, if all of it has
        been read."""
        if self._version is None:
            return self._decided(position)
        if self._version.read and self._followed:
            self._look_for_another()
            return Chunk([], [], position, caught_up=True, note=_encode(self._version))
        return None

    def _decided(self, position: int) -> Chunk:
        version = self._now()
        if version is None and not self._followed:
            raise SetupError(f"{self._name} is gone; restore it, or start with a new root")
        if version is None:
            return Chunk([], [], position, caught_up=True)
        self._version = version
        return Chunk([], [], position, begins=(position, _encode(version)))

    def _look_for_another(self) -> None:
        """Called once, when this reader is opened. A version that replaces one already read is not
        read."""
        if self._reader is None and self._version is not None:
            version = self._now()
            if version is not None and version.tag != self._version.tag:
                log.warning(
                    "%s was replaced after it had been read: its new content is not read. Write"
                    " new objects under new names",
                    self._name,
                )
            self._reader = _Nothing()

    def _note(self, finished: bool) -> bytes:
        assert self._version is not None
        if finished and not self._version.read:
            self._version = msgspec.structs.replace(self._version, read=True)
        return _encode(self._version)

    def _now(self) -> PinnedVersion | None:
        try:
            head = self._store.head(self._key)
        except UnavailableError as ex:
            raise ExhaustedError(str(ex)) from ex
        return None if head is None else PinnedVersion(head.version.tag, head.size)

    def _asked(self, ask: Callable[[Reader], _T]) -> _T:
        assert self._version is not None
        try:
            if self._reader is None or isinstance(self._reader, _Nothing):
                content = ObjectBytes(self._store, self._key, self._version.size, self._version.tag)
                self._reader = self._open_version(content)
                self._has_columns = self._whole is None or self._reader.take_whole(self._whole)
            return ask(self._reader)
        except UnavailableError as ex:
            raise ExhaustedError(
                f"{ex}. It is tried again; other objects are read meanwhile"
            ) from ex
        except ObjectChangedError as ex:
            raise SetupError(
                f"{ex}, before all of it had been read; restore that version, or start with a new"
                " root. Objects of a source are written once: write new ones under new names"
            ) from ex


class _Nothing(Reader):
    """Stands in for a reader whose object has been read."""

    def read(self, position: int, max_records: int) -> Chunk:
        return Chunk([], [], position)
