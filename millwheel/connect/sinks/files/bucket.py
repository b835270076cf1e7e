"""A prefix in an object store as the destination of a sink's files: objects that are replaced only
by newer ones.

The metadata of each object names the batch that it holds. A piece is written only if the present
object holds an older batch, and only while that object has the same tag. So publishing a piece
again changes nothing, even if a zombie does it.
"""

from __future__ import annotations

import xxhash

from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.sinks.base import LostError
from millwheel.connect.sinks.files.layout import Piece, left_behind
from millwheel.connect.sinks.files.marker import HIDDEN, MARKER, refuse_other, refuse_results
from millwheel.core.model.lease import Lease
from millwheel.errors import CorruptionError, SetupError, UnavailableError

_TRIES = 5  # writers of the same object: zombies, each one step behind the next


class BucketDestination:
    """The visible objects are below ``prefix``, the hidden ones below its ``.millwheel/``."""

    small_bytes = 64 * 1024
    """Content of at most this many bytes travels in the committable, and so in the journal."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self.name = f"{store.address.top}/{prefix}".rstrip("/")
        self._hidden = f"{self._prefix}{HIDDEN}/"
        self._kept: dict[str, bytes] = {}

    def check(self, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`. Raises SetupError too for a store that
        ignores conditions."""
        marker = f"{self._hidden}{MARKER}"
        try:
            content = self._store.get(marker)
            if content is None:
                refuse_results(
                    self.name,
                    (each.key.rpartition("/")[2] for each in self._store.list(self._prefix)),
                )
                self._store.write(marker, identity.encode(), None)
                content = self._store.get(marker)
            refuse_other(self.name, identity, (content or b"").decode("utf-8", "replace"))
            if self._store.write(marker, identity.encode(), None) is not None:
                raise SetupError(
                    f"{self.name} is in a store that writes an object although it exists (it"
                    " ignores If-None-Match), so results could not appear exactly once; use a"
                    " store with conditional writes"
                )
        except UnavailableError as ex:
            raise SetupError(str(ex)) from ex

    def discard(self, identity: str) -> str:
        """See :class:`millwheel.connect.sinks.base.Sink`. Raises SetupError where there are any:
        objects are not removed."""
        marker = f"{self._hidden}{MARKER}"
        if self._store.head(marker) is not None and self._store.get(marker) == identity.encode():
            raise SetupError(
                f"{self.name} holds the results of this root, and --fresh removes no objects;"
                " remove them"
            )
        return ""

    def adopt(self, former: str, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        marker = f"{self._hidden}{MARKER}"
        try:
            there = self._store.head(marker)
            if there is not None and self._store.get(marker) == former.encode():
                # Only as it was read: two runs that start from one savepoint must not both have it.
                self._store.write(marker, identity.encode(), there.version)
        except UnavailableError as ex:
            raise SetupError(str(ex)) from ex

    def hide(self, contents: list[tuple[str, bytes]]) -> None:
        """Make hidden objects durable."""
        for temp, data in contents:
            self._store.stage(f"{self._hidden}{temp}", data)
            self._kept[temp] = data

    def publish(self, piece: Piece, number: int) -> None:
        """Make a piece visible, unless it or a newer one is visible already."""
        key = f"{self._prefix}{piece.final}"
        is_lost = False
        for _ in range(_TRIES):
            there = self._store.head(key)
            # Compare by number only: the present object may hold this batch and later ones. See
            # test_a_zombie_that_publishes_late_puts_nothing_older_in_the_place_of_newer_rows.
            if there is not None and there.number >= number:
                break
            if there is not None and there.number < 0:
                raise CorruptionError(
                    f"{self.name}/{piece.final} is not ours: another program wrote it; move it"
                    " elsewhere"
                )
            data = self._content(piece)
            is_lost = data is None  # a zombie may have published it just now: look again
            version = None if there is None else there.version
            if data is not None and self._store.write(key, data, version, number) is not None:
                break
        else:
            self._give_up(piece, is_lost)
        if piece.size and not piece.data:
            # Only now: until the object is visible, this is the only copy of the rows.
            self._store.delete(f"{self._hidden}{piece.temp}")
            self._kept.pop(piece.temp, None)

    def sweep(self, shard: str, token: int, committed: set[str]) -> None:
        """Remove the hidden objects of former owners, except the ``committed`` ones."""
        if Lease(token).is_first:
            return
        names = [
            each.key[len(self._hidden) :]
            for each in self._store.list(f"{self._hidden}part-{shard}-")
        ]
        for name in left_behind(names, shard, token):
            if name not in committed:
                self._store.delete(f"{self._hidden}{name}")

    def _give_up(self, piece: Piece, is_lost: bool) -> None:
        if is_lost:
            raise LostError(f"{self.name}/{HIDDEN}/{piece.temp} is gone before it was published")
        raise UnavailableError(f"{self.name}/{piece.final} was changed by others {_TRIES} times")

    def _content(self, piece: Piece) -> bytes | None:
        """The content of a piece, None when its hidden object is gone."""
        if piece.data or not piece.size:
            return piece.data
        data = self._kept.get(piece.temp)
        if data is None:
            data = self._store.get(f"{self._hidden}{piece.temp}")
        if data is not None and (
            len(data) != piece.size or xxhash.xxh3_64_intdigest(data) != piece.checksum
        ):
            raise CorruptionError(
                f"{self.name}/{HIDDEN}/{piece.temp} is not what was written; the store damaged it"
            )
        return data
