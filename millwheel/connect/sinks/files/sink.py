"""Files of results that can be read by a plain glob at any moment: every visible file is whole,
committed, and final.

A batch is written to the hidden folder ``.millwheel``, as ``part-<shard>-<number>-<attempt>.tmp``,
and gets its visible name, ``part-<shard>-<number>.jsonl``, by a hard link once its commit is
durable. A link cannot overwrite a file, so a zombie that publishes the same batch again changes
nothing. The order is: link, make the name durable, remove the hidden name. So if the hidden file of
a committed batch is gone, the visible one is there.

The content of a small batch is in its committable, and so in the journal. It is written to a file
only when it is published, which saves two waits for the disk before the commit. Every attempt to
publish it has a hidden file of its own, so a zombie's half-written file can never get the visible
name.

The hidden files have a folder of their own because the ``*`` of DuckDB and Polars matches names
that begin with a dot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
import xxhash

from millwheel.adapters.spaces.durable import read_whole, write_new
from millwheel.adapters.spaces.files import Files, ResultFiles
from millwheel.adapters.spaces.object_address import address_of, local_path
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.built_in import other_system
from millwheel.connect.formats.avro.containers import ContainerRows, avro_rows
from millwheel.connect.options import read_options
from millwheel.connect.sinks.base import Refused, Sink, SinkBatch, Writer, flush_us
from millwheel.connect.sinks.error_messages import in_words
from millwheel.connect.sinks.files.bucket import BucketDestination
from millwheel.connect.sinks.files.content import Content
from millwheel.connect.sinks.files.folder import FolderDestination
from millwheel.connect.sinks.files.latest import LatestWriter, must_be_plain
from millwheel.connect.sinks.files.layout import (
    LARGE_RECORDS,
    Destination,
    Layout,
    LayoutWriter,
    hidden_name,
    left_behind,
)
from millwheel.connect.sinks.files.marker import HIDDEN, adopt, claim, discard
from millwheel.connect.sinks.files.options import FilesSinkOptions, shape, takes_columns
from millwheel.connect.sinks.files.paths import Partitioning
from millwheel.connect.sinks.result_rows import Mode
from millwheel.core.model.damage import checked
from millwheel.errors import CorruptionError


class FileCommittable(msgspec.Struct, frozen=True, array_like=True):
    """The committable of a batch. ``checksum`` is the xxh3-64 of the ``size`` bytes of the file.
    The content of a small file is ``data``; that of a large one is in the hidden file ``temp``."""

    temp: str
    final: str
    rows: int
    size: int
    checksum: int
    data: bytes = b""

    def __post_init__(self) -> None:
        """Raises ValueError for names that lead elsewhere."""
        must_be_plain(self.temp, self.final)


SMALL_BYTES = 64 * 1024
"""A batch of at most this many bytes goes through the journal."""
_LANES = 8
"""Threads that publish the batches of a worker: each batch waits twice for the disk, which syncs
all waiting writes together. After a death each shard has a batch at the same time."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = checked(msgspec.msgpack.Decoder(FileCommittable).decode, "a committable")


def build_files(
    options: Mapping[str, Any], folder: str, files: Files | None = None
) -> FilesSink | LayoutSink:
    """Raises ValueError, with a sentence, for options that cannot work."""
    checked = read_options("the sink 'files'", options, FilesSinkOptions)
    address = address_of(checked.path, other_system)
    avro = avro_rows(checked.form(), folder)
    if address is not None:
        return LayoutSink(
            checked, BucketDestination(ObjectStore(address, checked.config), address.key), avro
        )
    path = os.path.abspath(os.path.join(folder, local_path(checked.path)))
    if checked.partition_by or checked.roll:
        return LayoutSink(checked, FolderDestination(files or ResultFiles(), path), avro)
    return FilesSink(checked, path, files or ResultFiles(), avro)


class FilesSink(Sink):
    """A folder of part files."""

    def __init__(
        self,
        options: FilesSinkOptions,
        folder: str,
        files: Files,
        avro: ContainerRows | None = None,
    ) -> None:
        self._options = options
        self._folder = folder
        self._files = files
        self._avro = avro
        self.flush_us = flush_us(options.flush)
        self.cut_records = options.cut_records
        mode = Mode(options.mode)
        self.takes_retractions = mode is not Mode.APPEND
        self.replaces_rows = self.keeps_latest = mode is Mode.UPSERT

    def check(self, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`. Creates the folder and marks it as this
        root's."""
        claim(self._files, self._folder, identity)

    def adopt(self, former: str, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        adopt(self._files, self._folder, former, identity)

    def discard(self, identity: str) -> str:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        return discard(self._folder, identity)

    def open(self, shard: str, token: int) -> Writer:
        if self.keeps_latest:
            content = Content(shape(self._options))
            return LatestWriter(
                content.encode, content.suffix, self._folder, shard, token, self._files
            )
        return FilesWriter(self._options, self._folder, shard, token, self._files, self._avro)


class LayoutSink(Sink):
    """Files in partitioned folders, rolled files, or objects."""

    def __init__(
        self, options: FilesSinkOptions, destination: Destination, avro: ContainerRows | None = None
    ) -> None:
        self._options = options
        self._destination = destination
        self._avro = avro
        self.flush_us = flush_us(options.flush)
        self.cut_records = options.cut_records
        mode = Mode(options.mode)
        self.takes_retractions = mode is not Mode.APPEND
        self.replaces_rows = self.keeps_latest = mode is Mode.UPSERT
        self._layout = Layout(
            options.form().name,
            Partitioning(options.levels()) if options.levels() else None,
            None if options.roll is None else options.roll.roll(),
            self.keeps_latest,
        )

    def check(self, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`. Marks the folder or prefix as this
        root's."""
        self._destination.check(identity)

    def adopt(self, former: str, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        self._destination.adopt(former, identity)

    def discard(self, identity: str) -> str:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        return self._destination.discard(identity)

    def open(self, shard: str, token: int) -> LayoutWriter:
        content = Content(shape(self._options), self._avro)
        writer = LayoutWriter(
            content.of, self._layout, self._destination, shard, token, fitting=content.fitting
        )
        writer.takes_columns = takes_columns(self._options)
        return writer


class FilesWriter(Writer):
    """Writes the batches of one shard. ``publish`` and ``prepare`` may run on other threads than
    the rest."""

    publishes_aside = True
    prepares_aside = LARGE_RECORDS

    def __init__(
        self,
        options: FilesSinkOptions,
        folder: str,
        shard: str,
        token: int,
        files: Files,
        avro: ContainerRows | None = None,
    ) -> None:
        self._options = options
        self._folder = folder
        self._hidden = f"{folder}/{HIDDEN}"
        self._shard = shard
        self._token = token
        self._files = files
        self._content = Content(shape(options), avro)
        self._refused: list[Refused] = []
        self.takes_columns = takes_columns(options)
        self._written: set[str] = set()
        self.lane = f"files {xxhash.xxh3_64_intdigest(f'{folder} {shard}'.encode()) % _LANES}"

    def prepare(self, batch: SinkBatch) -> bytes:
        data, count = self._encoded(batch)
        temp = hidden_name(self._shard, batch.number, batch.attempt)
        final = f"part-{self._shard}-{batch.number:08d}.{self._content.suffix}"
        checksum = xxhash.xxh3_64_intdigest(data)
        if len(data) <= SMALL_BYTES:
            return _pack(FileCommittable(temp, final, count, len(data), checksum, data))
        try:
            self._write(f"{self._hidden}/{temp}", data)
            # Before the commit that names it: a committable must not outlive its file.
            self._files.sync_dir(self._hidden)
        except OSError as ex:
            raise in_words(ex, f"write results to {self._folder}") from ex
        self._written.add(temp)
        return _pack(FileCommittable(temp, final, count, len(data), checksum))

    def _encoded(self, batch: SinkBatch) -> tuple[bytes, int]:
        """The file's content and how many rows it holds."""
        if batch.columns:
            return self._content.of(batch), sum(map(len, batch.columns))
        records, self._refused = self._content.fitting(batch.records)
        return self._content.encode(records), len(records)

    def take_refused(self) -> list[Refused]:
        refused, self._refused = self._refused, []
        return refused

    def publish(self, committable: bytes) -> None:
        batch = _unpack(committable)
        try:
            if not self._is_shown(batch):
                batch = self._unfolded(batch)
                self._show(batch)
            # Make the visible name durable before removing the hidden one. In the other order, a
            # power cut could leave neither, and the committable would name no file:
            # test_a_crash_at_any_call_loses_and_doubles_nothing.
            self._files.sync_dir(self._folder)
            self._remove(batch.temp)
        except OSError as ex:
            if batch.data:
                with contextlib.suppress(OSError):
                    self._remove(batch.temp)
            raise in_words(ex, f"publish {self._folder}/{batch.final}") from ex
        self._written.discard(batch.temp)

    def _is_shown(self, batch: FileCommittable) -> bool:
        """Whether a former owner has already made the batch visible, so nothing must be written
        again."""
        if batch.data and (exists := self._files.exists(f"{self._folder}/{batch.final}")):
            self._expect_published(batch)
        return bool(batch.data) and exists

    def _unfolded(self, batch: FileCommittable) -> FileCommittable:
        """The committable of a small batch whose content is now in a hidden file."""
        if not batch.data:
            return batch
        # Under a name of its own: a zombie may be writing the same batch.
        temp = batch.temp.replace(".tmp", f"-{uuid4().hex}.tmp")
        self._write(f"{self._hidden}/{temp}", batch.data)
        self._written.add(temp)
        return msgspec.structs.replace(batch, temp=temp)

    def sweep(self, committables: list[bytes]) -> None:
        committed = {_unpack(committable).temp for committable in committables}
        try:
            for name in left_behind(self._files.list_dir(self._hidden), self._shard, self._token):
                if name not in committed:
                    self._remove(name)
        except OSError as ex:
            raise in_words(ex, f"clean the output folder {self._folder}") from ex

    def _write(self, path: str, data: bytes) -> None:
        """Write a file. A failed write leaves none: it would be in the way of a retry, and would
        fill a full disk."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)
        try:
            write_new(self._files, path, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise

    def _remove(self, name: str) -> None:
        # a zombie that publishes the same batch may have removed it
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(f"{self._hidden}/{name}")

    def _show(self, batch: FileCommittable) -> None:
        """Make sure that the visible name is there and holds the batch."""
        try:
            self._verify(batch)
            # A link replaces nothing: a file with that name is compared, never overwritten.
            self._files.link(f"{self._hidden}/{batch.temp}", f"{self._folder}/{batch.final}")
        except (FileExistsError, FileNotFoundError):
            self._expect_published(batch)

    def _verify(self, batch: FileCommittable) -> None:
        """Read a file that another process wrote once before it becomes visible. Raises
        CorruptionError for other content."""
        if batch.temp not in self._written:
            self._compare(f"{self._hidden}/{batch.temp}", batch, "the disk damaged it")

    def _expect_published(self, batch: FileCommittable) -> None:
        try:
            self._compare(
                f"{self._folder}/{batch.final}",
                batch,
                "another program wrote it: move it out of the folder",
            )
        except FileNotFoundError:
            raise CorruptionError(
                f"{self._folder}/{batch.final} is gone, with {batch.rows} rows of results:"
                f" something removed it, or {HIDDEN}/{batch.temp}, before the run was done with it;"
                " put it back, or start again with a new root and a new folder"
            ) from None

    def _compare(self, path: str, batch: FileCommittable, blame: str) -> None:
        data = read_whole(self._files, path)
        if len(data) != batch.size or xxhash.xxh3_64_intdigest(data) != batch.checksum:
            raise CorruptionError(
                f"{path} ({len(data)} bytes) is not the batch of {batch.rows} rows ({batch.size}"
                f" bytes) that belongs there; {blame}"
            )
