"""What did not return is a dead letter at the next owner, exactly that and once; everything else is
processed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import Due
from millwheel.engine.workers.bundle.hangs import (
    TOGETHER_MARK,
    Avoided,
    Doing,
    Hang,
    Hangs,
    LeasedShard,
    decode_hang,
    encode_hang,
    record_mark,
    timer_mark,
)
from millwheel.errors import CorruptionError
from tests.unit.engine.workers.bench import NOW, ShardBench


class Running:
    """An operator in the middle of calls."""

    def __init__(self, *progress: int) -> None:
        self._progress = list(progress)
        self.running = True

    def busy(self) -> bool:
        return self.running

    def progress(self) -> tuple[int, int]:
        return (self._progress.pop(0) if len(self._progress) > 1 else self._progress[0], 0)

    def doing(self) -> Doing | None:
        return Doing("record", "ann", b"m")

    def avoid(self, avoided: Avoided) -> None:
        self.avoided = avoided


def hang(mark: bytes, token: int = 1) -> Hang:
    return Hang("work", "work-0", token, "record", "'ann'", mark, "code.py:3 in slow", "1m")


def test_a_look_from_beside_sees_which_record_a_callback_is_at() -> None:
    seen: list[tuple[str, Any, tuple[int, int]]] = []

    class Looking(Computation):
        def process_record(self, ctx: Any, record: Any) -> None:
            operator = bench.shard.operator
            seen.append((ctx.key, operator.doing(), operator.progress()))

    bench = ShardBench(Looking)
    bench.deliver(("a", 1, NOW), ("b", 2, NOW + 1), ("a", 3, NOW + 2), first=7)
    bench.deliver(("c", 4, NOW), channel="other")
    bench.run()
    indexes = [("a", "up", 7), ("b", "up", 8), ("a", "up", 9), ("c", "other", 1)]
    assert [(key, doing) for key, doing, _ in seen] == [
        (key, Doing("record", key, encode_value(("r", channel, seq))))
        for key, channel, seq in indexes
    ]
    assert len({progress for _, _, progress in seen}) == len(seen)
    assert bench.shard.operator.doing() is None


def test_records_timers_and_windows_are_known_by_what_stays_the_same() -> None:
    batch = Batch("s", [7, 9], [0, 0], ["a", "b"], [1, 2])
    assert record_mark(batch, "c-0", 1) == encode_value(("r", "c-0", 9))
    assert record_mark(Batch("s", [], [0], ["a"], [1], ["id"]), "c-0", 0) == encode_value(
        ("i", "id")
    )
    assert record_mark(Batch("s", [], [0], ["a"], [1]), "c-0", 0) == b""
    assert timer_mark(Due("a", "t", 5, Domain.EVENT)) != timer_mark(Due("a", "t", 6, Domain.EVENT))


def test_only_a_bundle_that_may_meet_it_is_looked_at_and_it_is_met_once() -> None:
    mark = encode_value(("r", "c-0", 5))
    avoided = Avoided({mark: hang(mark)})
    before, around = (
        Batch("s", [1, 4], [0, 0], ["a", "b"], [1, 2]),
        Batch("s", [4, 6], [0, 0], ["a", "b"], [1, 2]),
    )
    assert not avoided.may_meet([("c-0", before)])
    assert not avoided.may_meet([("c-1", around)])
    assert avoided.may_meet([("c-0", around)])
    assert avoided.meet(mark, 12) is not None
    assert avoided.meet(mark, 12) is None
    avoided.durable(11)
    assert avoided.settled.empty()
    avoided.durable(12)
    assert avoided.settled.get() == ("work", mark)


def test_notes_are_read_by_the_next_owner_counted_and_removed_when_they_have_served(
    tmp_path: Path,
) -> None:
    mark = encode_value(("r", "c-0", 5))
    notes = HangNotes(open_space(str(tmp_path)))
    (tmp_path / "hangs" / "work").mkdir(parents=True)
    (tmp_path / "hangs" / "work" / "junk.json").write_bytes(b"{")
    hangs = Hangs(notes, after=2)
    entry = ShardEntry("work-0", tile(1)[0], "w1", 3)
    operator = Running(1)

    def avoided() -> Avoided:
        hangs.read_notes("work", entry)
        hangs.watch(operator, "work", entry)
        return operator.avoided

    hangs.write(hang(mark))
    assert not avoided().hangs
    hangs.write(hang(mark))
    found = avoided()
    assert list(found.hangs) == [mark]
    assert dict(hangs.watched()) == {LeasedShard("work", "work-0", 3): operator}
    found.meet(mark, 1)
    found.durable(1)
    hangs.tidy()
    assert not avoided().hangs
    assert list(notes.read("work")) == ["junk.json"]


def test_one_note_about_several_records_is_enough_to_call_them_one_by_one(tmp_path: Path) -> None:
    hangs = Hangs(HangNotes(open_space(str(tmp_path))), after=2)
    entry, operator = ShardEntry("work-0", tile(1)[0], "w1", 3), Running(1)
    hangs.write(hang(TOGETHER_MARK))
    hangs.read_notes("work", entry)
    hangs.watch(operator, "work", entry)
    assert operator.avoided.apart
    assert not operator.avoided.may_meet([("c-0", Batch("s", [1], [0], ["a"], [1]))])


def test_a_note_is_read_as_it_was_written_and_anything_else_is_corrupt() -> None:
    note = hang(b"\x93\xff")
    assert decode_hang(encode_hang(note)) == note
    for data in (b"", b"{", b"[]", b"[" * 100_000, b'{"node": 1}', b"\xff", encode_hang(note)[:-1]):
        with pytest.raises(CorruptionError):
            decode_hang(data)
