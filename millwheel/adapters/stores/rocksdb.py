"""The local store of a shard on RocksDB: one database per shard, one cache and one write budget for
all of them.

RocksDB's own write-ahead log is off, because the journal is the log: a database is a cache of
snapshot + journal and is thrown away with its process. Flushed files (SSTs) never change, so a
checkpoint can be a set of links.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DataBlockIndexType,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from millwheel.adapters.spaces.files import explained
from millwheel.core.formats.store_layout import after
from millwheel.errors import (
    CorruptionError,
    InvariantError,
    MillwheelError,
    SetupError,
    UnavailableError,
)

CACHE_BYTES = 192 << 20
"""Blocks, filters, indexes and unflushed writes of all stores of a process together."""
WRITE_BYTES = 64 << 20
"""The part of it for unflushed writes."""
_SHARD_WRITE_BYTES = 16 << 20  # write buffer of one shard; all together have WRITE_BYTES
_BLOCK_BYTES = 2 << 10
"""Most reads are of one small value under a random key."""
_META_BLOCK_BYTES = 16 << 10
"""The size of a block of an index or a filter."""
_IDENTITY = b"\x00"
_FORMAT = b"millwheel state 1"
_SIZES = ("rocksdb.estimate-live-data-size", "rocksdb.size-all-mem-tables")
_CHUNK = 512  # entries that a scan hands over at once
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,191}")

Entry = tuple[bytes, bytes]


class RocksStore:
    """A :class:`millwheel.adapters.ports.StateStore`. The key ``b"\\x00"`` is taken: it marks a
    store of ours."""

    def __init__(self, db: Rdict, path: str) -> None:
        self._db = db
        self._path = path
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._get = db.get

    def get(self, key: bytes) -> bytes | None:
        try:
            return cast("bytes | None", self._get(key))
        except Exception as ex:
            raise _translated(ex, self._path) from ex

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._get(keys if type(keys) is list else list(keys)))
        except Exception as ex:
            raise _translated(ex, self._path) from ex

    def apply(self, puts: Iterable[Entry], deletes: Iterable[bytes]) -> None:
        batch = WriteBatch(True)
        put = batch.put
        for key, value in puts:
            put(key, value)
        delete = batch.delete
        for key in deletes:
            delete(key)
        self._write(batch)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        if begin >= end:
            return
        batch = WriteBatch(True)
        batch.delete_range(begin, end)
        if begin <= _IDENTITY < end:
            # In the same batch: without it, the next life takes the store for a foreign one.
            batch.put(_IDENTITY, _FORMAT)
        self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._db.write(batch)
        except Exception as ex:
            raise _translated(ex, self._path) from ex

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[Entry]:
        """The first entries are read at once, which is all of most scans; longer ones go on over
        RocksDB's iterator, which sees the store as of this call and ends with :meth:`close`."""
        try:
            scan = _Scan(self._db, prefix, since, self._path)
        except Exception as ex:
            raise _translated(ex, self._path) from ex
        head = scan.some()
        if scan.ended:
            return iter(head)
        self._scans.add(scan)
        return chain(head, chain.from_iterable(iter(scan.some, [])))

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        try:
            # it must outlive the iterator, which has a pointer to the bound
            options = ReadOptions()
            if end := after(prefix):
                options.set_iterate_upper_bound(end)
            cursor = self._db.iter(options)
            cursor.seek(max(prefix, since))
            if cursor.valid() and cursor.key() == _IDENTITY:
                cursor.next()
            key = cursor.key() if cursor.valid() else None
            cursor.status()
            del cursor
        except Exception as ex:
            raise _translated(ex, self._path) from ex
        return cast("bytes | None", key)

    def checkpoint(self, path: str) -> None:
        """The flush comes first and lets other threads run; the checkpoint itself is then a few
        links."""
        try:
            self._db.flush()
            Checkpoint(self._db).create_checkpoint(path)
        except Exception as ex:
            raise _translated(ex, f"{self._path} (checkpoint to {path})") from ex

    def size_bytes(self) -> int:
        """RocksDB's own estimate plus its unwritten data."""
        sizes = (self._db.property_int_value(name) for name in _SIZES)
        return sum(size or 0 for size in sizes)

    def close(self) -> None:
        """Idempotent. Scans that are still open end with InvariantError, since they would keep the
        store open."""
        for scan in list(self._scans):
            scan.stop()
        with contextlib.suppress(DbClosedError):
            self._db.close()


class _Scan:
    """The only holder of a RocksDB iterator, so that dropping it here closes it.

    RocksDB keeps a pointer to the bound inside the read options: they must live as long as the
    iterator. An iterator that hits damage just ends, as at the last entry; only its status differs.
    """

    def __init__(self, db: Rdict, prefix: bytes, since: bytes, path: str) -> None:
        self._path = path
        self._cursor: RdictIter | None = None
        self._options = ReadOptions()
        end = after(prefix)
        if end:
            self._options.set_iterate_upper_bound(end)
        self._cursor = db.iter(self._options)
        self._cursor.seek(max(prefix, since))
        self.ended = False

    def some(self) -> list[Entry]:
        """The next entries; none at the end."""
        if self.ended:
            return []
        if self._cursor is None:
            raise InvariantError(
                f"a scan of {self._path} went on after the store was closed; scan before closing"
            )
        valid, key, value, step = (
            self._cursor.valid,
            self._cursor.key,
            self._cursor.value,
            self._cursor.next,
        )
        entries: list[Entry] = []
        while valid():
            entries.append((key(), value()))
            step()
            if len(entries) == _CHUNK:
                return _without_identity(entries)
        self._end(self._cursor)
        return _without_identity(entries)

    def _end(self, cursor: RdictIter) -> None:
        try:
            # Without this question a damaged table reads like a short one: a shard would go on
            # without timers and marks that it had
            # (test_damage_found_while_reading_is_reported_as_corruption).
            cursor.status()
        except Exception as ex:
            raise _translated(ex, self._path) from ex
        self.ended = True
        self._cursor = None

    def stop(self) -> None:
        self._cursor = None


def _without_identity(entries: list[Entry]) -> list[Entry]:
    """The entries but the identity; only the empty key sorts before it."""
    return (
        [entry for entry in entries if entry[0] != _IDENTITY]
        if entries and entries[0][0] <= _IDENTITY
        else entries
    )


class RocksStores:
    """A :class:`millwheel.adapters.ports.StateStores` below ``folder``, which must be this process'
    own."""

    def __init__(
        self, folder: str, cache_bytes: int = CACHE_BYTES, write_bytes: int = WRITE_BYTES
    ) -> None:
        self._folder = Path(folder)
        self._cache = Cache(cache_bytes)
        self._budget = WriteBufferManager.new_write_buffer_manager_with_cache(
            write_bytes, False, self._cache
        )

    def open(self, shard: str, checkpoint: str | None) -> RocksStore:
        """``checkpoint`` is moved into place: it is gone afterwards. An earlier store of ``shard``
        here is deleted.

        Raises CorruptionError when the directory is not a store of ours, SetupError when the folder
        cannot be used.
        """
        if not _NAME.fullmatch(shard):
            raise SetupError(
                f"{shard!r} cannot name a shard: use letters, digits, '_', '-' and '.'"
            )
        path = self._folder / shard
        try:
            # An earlier life's: entries that the shard has deleted since would be there again.
            shutil.rmtree(path, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            if checkpoint is not None:
                _move(checkpoint, path)
        except OSError as ex:
            raise explained(ex, f"prepare the local store {path}") from ex
        return RocksStore(self._open(path, checkpoint is None), str(path))

    def _open(self, path: Path, fresh: bool) -> Rdict:
        try:
            options = _options(self._cache, self._budget, fresh)
            # A store that exists takes the options of its column family from here; else it would
            # have no filters.
            db = Rdict(str(path), options, column_families={"default": options})
            write = WriteOptions()
            # Data that must survive is in the journal; a log here would be written for nothing.
            write.disable_wal = True  # type: ignore[method-assign,assignment]  # a property; a method in the stubs
            db.set_write_options(write)
            if fresh:
                db.put(_IDENTITY, _FORMAT)
            identity = db.get(_IDENTITY)
        except Exception as ex:
            raise _damaged(str(path), ex) if not fresh else _translated(ex, str(path)) from ex
        if identity != _FORMAT:
            db.close()
            raise CorruptionError(
                f"{path} is not a shard store of this version (its identity is {identity!r},"
                f" expected {_FORMAT!r}); it was restored from an incomplete snapshot, or the"
                " path is wrong"
            )
        return db


def _move(source: str, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError:
        shutil.copytree(source, target)
        shutil.rmtree(source, ignore_errors=True)


def _options(cache: Cache, budget: WriteBufferManager, fresh: bool) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_bloom_filter(10, False)
    table.set_block_size(_BLOCK_BYTES)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    table.set_cache_index_and_filter_blocks(True)
    # In pieces. Whole, the filter and the index of a table are one block each of up to a megabyte:
    # with more of them than the cache holds (some millions of entries), each read of a random key
    # brings whole ones in and others out.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(_META_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(fresh)
    options.set_error_if_exists(fresh)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(budget)
    options.set_write_buffer_size(_SHARD_WRITE_BYTES)
    options.set_max_write_buffer_number(4)
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_memtable_whole_key_filtering(True)
    # A write that RocksDB slows down would hold the interpreter's lock and stop the whole process,
    # so it never does: snapshots flush often and compaction may lag behind.
    options.set_level_zero_slowdown_writes_trigger(64)
    options.set_level_zero_stop_writes_trigger(256)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(256)
    options.set_bytes_per_sync(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(4 << 20)
    return options


def _damaged(path: str, ex: Exception) -> CorruptionError:
    return CorruptionError(
        f"the local store {path} is damaged: {ex}; a restart rebuilds it from the snapshot"
    )


def _translated(ex: Exception, path: str) -> MillwheelError:
    text = str(ex)
    if isinstance(ex, MillwheelError):
        return ex
    if isinstance(ex, DbClosedError):
        return InvariantError(f"the store {path} was used after it was closed")
    if text.startswith("Corruption"):
        return _damaged(path, ex)
    return UnavailableError(
        f"the local store {path} failed: {text}; look at disk space and permissions there"
    )
