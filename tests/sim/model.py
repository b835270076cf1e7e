"""What must be true of every shard: the fold of its commits, kept beside the system and compared
with it.

The canonical history of a shard is the sequence of its commits 1, 2, 3, … that count: those that
were acked, and those that a recovery found in the journals of the owners before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.formats.codec import FULL_STOP, Commit, decode_commit
from millwheel.core.formats.store_layout import (
    CHANNEL,
    EXPIRED,
    META,
    POSITION,
    RUNS,
    SEEN,
    SLICE,
    Meta,
    Position,
    decode_meta,
    decode_position,
    number_from8,
)
from millwheel.core.model.range_table import ShardEntry
from millwheel.engine.workers.delivery.high_water_marks import decode_high_water_marks
from tests.sim.kernel import Failure
from tests.sim.successors import expected


@dataclass(slots=True)
class ShardModel:
    """The canonical history of one shard, folded up to ``number``."""

    number: int = 0
    token: int = 0
    state: dict[bytes, bytes] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    submitted: dict[tuple[int, int], Commit] = field(default_factory=dict)
    meta: Meta = field(default_factory=lambda: Meta(counters={}))


class CommitModel:
    """All shards. Every method raises Failure when what it is told contradicts what was told
    before."""

    def __init__(self) -> None:
        self.shards: dict[str, ShardModel] = {}
        self.doubtful: dict[tuple[str, int, int], str] = {}

    def shard(self, name: str) -> ShardModel:
        known = self.shards.get(name)
        if known is None:
            known = self.shards[name] = ShardModel()
        return known

    def submitted(self, entries: list[bytes]) -> None:
        """Commits are on their way to a journal."""
        for entry in entries:
            if entry == FULL_STOP:
                continue
            commit = decode_commit(entry)
            self.shard(commit.shard).submitted[commit.token, commit.number] = commit

    def acked(self, worker: str, commits: Sequence[Commit]) -> None:
        """The journal says that these commits are durable: what follows from them may be acked and
        sent.

        An acked commit is never lost or replaced, one token acks any given commit, and after a seal
        nothing is acked.
        """
        for commit in commits:
            model = self.shard(commit.shard)
            about = (commit.shard, worker)
            if commit.number <= model.number:
                if model.tokens[commit.number] != commit.token:
                    raise Failure(
                        f"one token acks: commit {commit.number} of {commit.shard} was acked under"
                        f" token {commit.token} by {worker}, and stands under token"
                        f" {model.tokens[commit.number]}",
                        about,
                    )
                continue
            if commit.token < model.token:
                raise Failure(
                    f"nothing is acked after the seal: {worker} acked commit {commit.number} of"
                    f" {commit.shard} under token {commit.token}, but token {model.token} went on"
                    f" from commit {model.number}",
                    about,
                )
            if commit.number != model.number + 1:
                raise Failure(
                    f"commits are contiguous: {commit.shard} acks {commit.number} after"
                    f" {model.number}",
                    about,
                )
            self._count(model, commit)

    def recovered(self, worker: str, entry: ShardEntry, content: dict[bytes, bytes]) -> None:
        """A new owner has opened its store. Restored state is the fold of the log, and every acked
        commit is in it."""
        model = self.shard(entry.shard)
        if entry.token <= model.token:
            return
        about = (entry.shard, worker)
        data = content.get(META)
        number = 0 if data is None else decode_meta(data).number
        if number < model.number:
            raise Failure(
                f"an acked commit is never lost: {worker} recovers {entry.shard} under token"
                f" {entry.token} up to commit {number}, acked were {model.number}",
                about,
            )
        if entry.parents and not model.number:
            self._inherited(model, entry, content, number, about)
        while model.number < number:
            commit = self._found(model, entry, model.number + 1)
            if commit is None:
                raise Failure(
                    f"{worker} recovers commit {model.number + 1} of {entry.shard}: nobody made it",
                    about,
                )
            self._count(model, commit)
        wrong = _differences(model.state, content)
        if wrong:
            raise Failure(
                f"restored state is the fold of the log: {entry.shard} at commit {number}: {wrong}",
                about,
            )
        model.token = entry.token
        model.submitted = {
            store_key: commit
            for store_key, commit in model.submitted.items()
            if store_key[0] >= entry.token
        }

    def _inherited(
        self,
        model: ShardModel,
        entry: ShardEntry,
        content: dict[bytes, bytes],
        number: int,
        about: tuple[str, ...],
    ) -> None:
        """The history of a shard that came of a split or merge begins with what its parents left
        it."""
        heirloom = expected(
            entry, {parent.shard: self.shard(parent.shard).state for parent in entry.parents}
        )
        for parent in entry.parents:
            if self.shard(parent.shard).number != parent.last_commit:
                raise Failure(
                    f"an acked commit is never lost: {entry.shard} comes from {parent.shard} at"
                    f" commit {parent.last_commit}, acked were {self.shard(parent.shard).number}",
                    (*about, parent.shard),
                )
        model.number, model.state = heirloom.number, heirloom.state
        if number > heirloom.number:
            return  # commits of its own have followed: their fold is compared
        wrong = heirloom.differences(content)
        if wrong:
            raise Failure(
                f"children get what was their parents', exactly once: {entry.shard}: {wrong}", about
            )
        model.state = dict(content)
        model.meta = decode_meta(content[META]) if META in content else model.meta

    def _found(self, model: ShardModel, entry: ShardEntry, number: int) -> Commit | None:
        for ancestor in entry.lineage:
            commit = model.submitted.get((ancestor.token, number))
            if commit is not None:
                return commit
        return None

    def _count(self, model: ShardModel, commit: Commit) -> None:
        doubt = self.doubtful.pop((commit.shard, commit.token, commit.number), None)
        if doubt is not None:
            raise Failure(doubt, (commit.shard,))
        before = model.state
        for store_key, value in commit.puts:
            self._check_rise(commit, store_key, before.get(store_key), value)
            before[store_key] = value
        for store_key in commit.deletes:
            before.pop(store_key, None)
        model.number = commit.number
        model.tokens[commit.number] = commit.token
        model.submitted.pop((commit.token, commit.number), None)
        model.meta = decode_meta(before[META])

    def _check_rise(self, commit: Commit, store_key: bytes, old: bytes | None, new: bytes) -> None:
        """Marks of channels, positions, watermark and numbers only rise, whoever owns the shard."""
        if old is None:
            return
        family = store_key[:1]
        before: Any
        after: Any
        if family == CHANNEL:
            before, after = _bounds(old), _bounds(new)
            if any(was > now_us for was, now_us in zip(before, after, strict=True)):
                raise Failure(
                    f"what counts only rises: {store_key!r} from {before} to {after}",
                    (commit.shard,),
                )
            return
        if store_key == META:
            a, b = decode_meta(old), decode_meta(new)
            before, after = (a.number, a.next_seq, a.watermark), (b.number, b.next_seq, b.watermark)
            if any(was > now_us for was, now_us in zip(before, after, strict=True)):
                raise Failure(
                    f"what counts only rises: {commit.shard} goes from {before} to {after}",
                    (commit.shard,),
                )
            return
        if family == POSITION:
            before, after = decode_position(old).position, decode_position(new).position
        else:
            return
        if after < before:
            raise Failure(
                f"what counts only rises: {store_key!r} of {commit.shard} goes from {before} to"
                f" {after}",
                (commit.shard,),
            )

    def mark(self, shard: str, channel: str) -> int:
        """The highest sequence number of a channel that is applied and durable."""
        data = self.shard(shard).state.get(CHANNEL + channel.encode())
        return 0 if data is None else _bounds(data)[1]

    def position(self, shard: str, partition: str) -> Position:
        data = self.shard(shard).state.get(POSITION + partition.encode())
        return Position() if data is None else decode_position(data)


def _bounds(data: bytes) -> tuple[int, int]:
    """The lowest and the highest mark of a channel."""
    known = decode_high_water_marks(data)
    return (known, known) if isinstance(known, int) else (known.lowest, known.highest)


def _differences(want: dict[bytes, bytes], got: dict[bytes, bytes]) -> str:
    """Ids that were forgotten locally may be there again after a recovery: they are left out. So
    are slices that have expired, which leave a store without a commit."""
    if want == got:
        return ""
    missing = [
        store_key
        for store_key, value in want.items()
        if got.get(store_key) != value and not _may_go(store_key, got)
    ]
    extra = [
        store_key
        for store_key in got
        if store_key not in want and store_key[:1] not in (SEEN, RUNS)
    ]
    if not missing and not extra:
        return ""
    return (
        f"{len(missing)} places are missing or differ ({missing[:3]}), {len(extra)} are too many"
        f" ({extra[:3]})"
    )


def _may_go(store_key: bytes, got: dict[bytes, bytes]) -> bool:
    """Whether a store may lack what commits put there: ids, and slices that begin before what it
    says has expired."""
    if store_key[:1] == SLICE and store_key not in got and EXPIRED in got:
        return number_from8(store_key[len(SLICE) + 1 :][:8]) < number_from8(got[EXPIRED])
    return store_key[:1] in (SEEN, RUNS)
