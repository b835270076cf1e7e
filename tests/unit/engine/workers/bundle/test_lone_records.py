"""Records that end their worker are found one by one and put aside; nothing else is lost, nothing
acked too soon."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel import Computation
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.bundle.hangs import Avoided, Hang, noted_hangs
from millwheel.engine.workers.bundle.work_note import InProgress
from millwheel.errors import InvariantError
from tests.unit.engine.workers.bench import ShardBench

ENTRY = ShardEntry("work-0", tile(1)[0], "w0", 9)  # type: ignore[arg-type]
WHOLE = ("0", f"{1 << 64:x}")


class DiedError(InvariantError):
    """Stands for the end of the process: nothing may catch it."""


class Bad(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        if record.value == 13:
            raise DiedError
        ctx.produce("out", record.value)


class Notes:
    """The note of one worker, and what became of it: a :class:`.DoingNote` without a file."""

    def __init__(self) -> None:
        self.now: InProgress | None = None

    def put(self, bundle: InProgress) -> Any:
        before, self.now = self.now, bundle
        return before

    def back(self, before: Any) -> None:
        self.now = before or None


def death(
    mark: bytes = b"", what: str = "", records: int = 3, lo: str = WHOLE[0], hi: str = WHOLE[1]
) -> Hang:
    ended = "was killed by SIGSEGV"
    return Hang(
        "work",
        "work-0",
        1,
        what,
        "'k'",
        mark,
        "bad.py:7 in f",
        ended=ended,
        records=records,
        lo=lo,
        hi=hi,
    )  # type: ignore[arg-type]


def test_the_fifth_owner_has_put_aside_the_record_that_ended_four_and_nothing_else() -> None:
    bench, notes, found = ShardBench(Bad), Notes(), {}
    good: list[Any] = []
    for owner in range(5):
        known = noted_hangs(found, ENTRY, 1)
        about = InProgress("work", "work-0", owner, *WHOLE)  # type: ignore[arg-type]
        avoided = Avoided(
            known.hangs, apart=known.apart, lone=known.lone, deaths=known.deaths, about=about
        )
        avoided.doing = notes  # type: ignore[assignment]
        bench.shard.avoid(avoided)
        watched = bench.shard.operator.watched()
        assert watched is not None
        watched.avoid(avoided)
        bench.deliver(("a", 1, 10), ("b", 13, 11), ("a", 3, 12))
        try:
            good += bench.through()
        except DiedError:
            assert notes.now is not None
            assert (owner >= 2) == bool(notes.now.mark)
            found[f"{owner}.json"] = death(notes.now.mark, notes.now.what, notes.now.records)
            bench.crash()
            notes.now = None
        else:
            break
    assert owner == 4
    assert good[-2:] == [1, 3]
    [letter] = bench.letters
    assert (letter["value"], letter["key"], letter["location"]) == (13, "b", "bad.py:7 in f")
    assert (
        letter["reason"]
        == "the worker was killed by SIGSEGV each time this record was processed, 2 times alone"
    )
    assert [arrival.index for arrival in bench.acked if type(arrival.reply_to) is str] == [0], (
        "acked once, as a whole"
    )


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_death_makes_nothing_slow(count: int) -> None:
    known = noted_hangs({f"{n}": death() for n in range(count)}, ENTRY, 1)
    assert (known.lone, known.hangs) == (0, {})


def test_deaths_concern_the_keys_of_a_shard_however_it_was_split() -> None:
    low, high = (ShardEntry(f"work-{n}", keys, "w0", 9) for n, keys in enumerate(tile(2)))  # type: ignore[arg-type]
    notes = {name: death(lo="0", hi=f"{1 << 62:x}") for name in ("a", "b")}
    assert noted_hangs(notes, low, 1).lone
    assert not noted_hangs(notes, high, 1).lone


def test_one_death_alone_and_one_hang_are_not_two_deaths() -> None:
    notes = {"a": death(b"m", "record"), "b": death(), "c": death()}
    assert noted_hangs(notes, ENTRY, 1).hangs == {}
    assert list(noted_hangs(notes | {"d": death(b"m", "record")}, ENTRY, 1).hangs) == [b"m"]


def test_once_enough_records_have_run_alone_the_notes_have_served() -> None:
    avoided = Avoided(lone=3, deaths=("a", "b"), about=InProgress("work", "work-0", 1, *WHOLE))  # type: ignore[arg-type]
    avoided.ran_alone(2)
    assert (avoided.lone, avoided.passed.empty()) == (1, True)
    avoided.ran_alone(1)
    assert (avoided.lone, avoided.passed.get()) == (0, ("work", ("a", "b")))
