"""A folder as the destination of a sink's files: hidden files that become visible by a rename.

The hidden file of a piece holds the whole content of the visible one, and the rename uses it up.
That fences zombies. A new owner first publishes all committed pieces in order. After that no hidden
file of an older piece is left, so a zombie cannot replace a newer file with an older one. A zombie
never publishes the pieces that it prepares itself, because they are never committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import xxhash

from millwheel.adapters.spaces.durable import make_dirs, read_whole, write_new
from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.error_messages import in_words
from millwheel.connect.sinks.files.layout import Piece, left_behind
from millwheel.connect.sinks.files.marker import HIDDEN, adopt, claim, discard
from millwheel.errors import CorruptionError


class FolderDestination:
    """The visible files are in ``folder``, the hidden ones in its ``.millwheel``."""

    small_bytes = -1
    """No content travels in the committable, because only a hidden file can be used up by a
    rename."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.name = folder
        self._hidden = f"{folder}/{HIDDEN}"
        self._written: set[str] = set()

    def check(self, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        claim(self._files, self.name, identity)

    def adopt(self, former: str, identity: str) -> None:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        adopt(self._files, self.name, former, identity)

    def discard(self, identity: str) -> str:
        """See :class:`millwheel.connect.sinks.base.Sink`."""
        return discard(self.name, identity)

    def hide(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Make hidden files durable."""
        try:
            for temp, data in contents:
                path = f"{self._hidden}/{temp}"
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(path)  # of a try that failed: a create would refuse
                write_new(self._files, path, data)
                self._written.add(temp)
            # Before the commit that names them: a committable must not outlive its files.
            self._files.sync_dir(self._hidden)
        except OSError as ex:
            for temp, _ in contents:
                with contextlib.suppress(OSError):
                    self._files.unlink(f"{self._hidden}/{temp}")
            raise in_words(ex, f"write results to {self.name}") from ex

    def publish(self, piece: Piece, number: int) -> None:
        """Make a piece visible, unless it is visible already."""
        path = f"{self.name}/{piece.final}"
        folder = path.rpartition("/")[0]
        try:
            self._verify(piece)
            make_dirs(self._files, folder)
            self._files.rename(f"{self._hidden}/{piece.temp}", path)
        except FileNotFoundError:
            self._expect_published(piece)
        except OSError as ex:
            raise in_words(ex, f"publish {path}") from ex
        try:
            # Before the runtime forgets the committable: nothing else names the hidden file.
            self._files.sync_dir(folder)
        except OSError as ex:
            raise in_words(ex, f"publish {path}") from ex
        self._written.discard(piece.temp)

    def sweep(self, shard: str, token: int, committed: set[str]) -> None:
        """Remove the hidden files of former owners, except the ``committed`` ones."""
        try:
            for name in left_behind(self._files.list_dir(self._hidden), shard, token):
                if name not in committed:
                    with contextlib.suppress(FileNotFoundError):
                        self._files.unlink(f"{self._hidden}/{name}")
        except OSError as ex:
            raise in_words(ex, f"clean the output folder {self.name}") from ex

    def _verify(self, piece: Piece) -> None:
        """Read a file that another process wrote once before it becomes visible. Raises
        CorruptionError for other content."""
        if piece.temp in self._written:
            return
        data = read_whole(self._files, f"{self._hidden}/{piece.temp}")
        if len(data) != piece.size or xxhash.xxh3_64_intdigest(data) != piece.checksum:
            raise CorruptionError(
                f"{self._hidden}/{piece.temp} ({len(data)} bytes) is not what was written"
                f" ({piece.size} bytes); the disk damaged it"
            )

    def _expect_published(self, piece: Piece) -> None:
        if not self._files.exists(f"{self.name}/{piece.final}"):
            raise CorruptionError(
                f"{self.name}/{piece.final} is gone, with {piece.rows} rows of results: something"
                f" removed it, or {HIDDEN}/{piece.temp}, before the run was done with it; put it"
                " back, or start again with a new root and a new folder"
            )
