"""Files of the current rows: one visible file per shard of the sink, replaced as a whole.

A batch holds all rows of the shard. It is written to the hidden folder before its commit, and takes
the visible name, ``part-<shard>.<format>``, by a rename once the commit is durable. A rename
replaces the file in one step, so a reader always sees the rows of exactly one commit.

The rename also uses up the hidden file, which fences zombies. A new owner removes the hidden files
of all earlier owners. A zombie can write new hidden files, but may not publish them: their commits
never become durable.

The rows themselves are state of the shard (``workers/sinks/upsert.py``), so a new owner can always
write them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from millwheel.adapters.spaces.durable import write_new
from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.base import LostError, SinkBatch, SinkRecord, Writer
from millwheel.connect.sinks.error_messages import in_words
from millwheel.connect.sinks.files.layout import hidden_name, left_behind
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.core.model.damage import checked

Encode = Callable[[Sequence[SinkRecord]], bytes]
"""Records -> the content of a file."""


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """The committable: the hidden file, and its visible name."""

    temp: str
    final: str

    def __post_init__(self) -> None:
        """Raises ValueError for names that lead elsewhere."""
        must_be_plain(self.temp, self.final)


def must_be_plain(*names: str) -> None:
    """Raises ValueError unless these are plain file names, without folders."""
    for name in names:
        if not name or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is not a name of a file")


_pack = msgspec.msgpack.Encoder().encode
_unpack = checked(msgspec.msgpack.Decoder(Replacement).decode, "a committable")


class LatestWriter(Writer):
    """Writes the current rows in one shard. ``suffix`` is the format."""

    def __init__(
        self, encode: Encode, suffix: str, folder: str, shard: str, token: int, files: Files
    ) -> None:
        self._encode = encode
        self._suffix = suffix
        self._folder = folder
        self._hidden = f"{folder}/{HIDDEN}"
        self._shard = shard
        self._token = token
        self._files = files
        self._renamed: set[str] = set()

    def prepare(self, batch: SinkBatch) -> bytes:
        temp = hidden_name(self._shard, batch.number, batch.attempt)
        path = f"{self._hidden}/{temp}"
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(path)
            # Its folder is not synced: after a power cut the rows are written again (LostError).
            self._write(path, self._encode(batch.records))
        except OSError as ex:
            raise in_words(ex, f"write results to {self._folder}") from ex
        return _pack(Replacement(temp, f"part-{self._shard}.{self._suffix}"))

    def publish(self, committable: bytes) -> None:
        """Idempotent. Also raises UnavailableError when the hidden file is gone and this writer did
        not publish it. The rows must then be prepared again."""
        batch = _unpack(committable)
        try:
            # Do not look at the visible file: it may hold an older batch. Only the hidden file
            # decides, and the rename uses it up:
            # test_a_zombie_that_publishes_between_any_two_calls_of_its_successor_changes_nothing.
            if batch.temp not in self._renamed:
                self._files.rename(f"{self._hidden}/{batch.temp}", f"{self._folder}/{batch.final}")
                self._renamed = {batch.temp}
            self._files.sync_dir(self._folder)
        except FileNotFoundError:
            raise LostError(
                f"{self._hidden}/{batch.temp} is gone before it was published; it is written again"
            ) from None
        except OSError as ex:
            raise in_words(ex, f"publish {self._folder}/{batch.final}") from ex

    def sweep(self, committables: list[bytes]) -> None:
        """Remove the hidden files of all owners before this one, committed or not: the rows are
        written again."""
        try:
            for name in left_behind(self._files.list_dir(self._hidden), self._shard, self._token):
                with contextlib.suppress(FileNotFoundError):  # a zombie may be publishing it
                    self._files.unlink(f"{self._hidden}/{name}")
        except OSError as ex:
            raise in_words(ex, f"clean the output folder {self._folder}") from ex

    def _write(self, path: str, data: bytes) -> None:
        try:
            write_new(self._files, path, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
