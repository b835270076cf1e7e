"""Which nodes of a root keep anything in the form that their settings decide: windows, and groups
on their way to them.

A computation that has failed on every record keeps nothing, and may be corrected on its root. Reads
the journals of a root that nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from millwheel.adapters.durable_store import open_journals, open_snapshots
from millwheel.core.formats import store_layout as layout
from millwheel.core.formats.codec import FULL_STOP, Commit, decode_batch
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import groups_of, shard_parts
from millwheel.errors import MillwheelError

_FREE = frozenset(
    (
        layout.META,
        layout.CHANNEL,
        layout.SEEN,
        layout.RUNS,
        layout.PENDING,
        layout.POSITION,
        layout.JUDGED,
        layout.ARRIVED,
    )
)
"""What a store has whatever a computation does."""
_GROUPS = groups_of("")
_commit = msgspec.msgpack.Decoder(Commit).decode


def may_keep_state(address: str) -> Callable[[str], bool]:
    """Whether a node of a root may keep what has the form of its settings. True in case of
    doubt."""
    try:
        nodes = _nodes_with_state(address)
    except (MillwheelError, *DAMAGE):  # a journal whose beginning is gone, for one
        return lambda node: True
    return nodes.__contains__


def _nodes_with_state(address: str) -> set[str]:
    snapshots = (shard_parts(shard) for shard in open_snapshots(address).shards())
    nodes = {str(parts[0]) for parts in snapshots if parts is not None}
    for commit in _commits(address):
        parts = shard_parts(commit.shard)
        for key, value in commit.puts:
            if key[:1] not in _FREE and parts is not None:
                nodes.add(str(parts[0]))
            if key[:1] == layout.PENDING:
                nodes.update(_grouped(value))
    return nodes


def _commits(address: str) -> Iterator[Commit]:
    """All commits of all workers, none of which lives: their journals are sealed, as the next
    master would."""
    journals = open_journals(address)
    for incarnation in journals.incarnations():
        for entry in journals.read(incarnation, journals.seal(incarnation)):
            if entry != FULL_STOP:
                yield _commit(entry)


def _grouped(pending: bytes) -> Iterator[str]:
    """The nodes to which groups are on their way in these productions."""
    for encoded in layout.decode_pending(pending).batches:
        stream = decode_batch(encoded).stream
        if stream.startswith(_GROUPS):
            yield stream.removeprefix(_GROUPS)
