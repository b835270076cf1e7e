"""How often a source that has nothing to say is looked at, and how its silence moves its
watermark."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from millwheel.connect.sources.base import Chunk, Partition, Reader, Source
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, SECOND
from millwheel.core.model.watermark import ReadFirst, Watermarks
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.sim.mistakes import replaced

POLL_US = 20_000


class Silent(Source, Reader):
    """A followed file that nobody writes to; it remembers how often it was read."""

    bounded = False
    poll_us = POLL_US

    def __init__(self) -> None:
        self.reads = 0

    def partitions(self) -> list[Partition]:
        return []

    def open(self, partition: Partition) -> Silent:
        return self

    def read(self, position: int, max_records: int) -> Chunk:
        self.reads += 1
        return Chunk([], [], position)


class Growing(Source):
    """Partitions of which each has so many records by now, one a second."""

    bounded = False
    poll_us = POLL_US
    caught_up = False

    def __init__(self, written: dict[str, int]) -> None:
        self.written = written
        self.told: list[tuple[str, int]] = []

    def partitions(self) -> list[Partition]:
        return []

    def open(self, partition: Partition) -> GrowingReader:
        return GrowingReader(self, partition.name)

    def committed(self, partition: Partition, position: int) -> None:
        self.told.append((partition.name, position))


class GrowingReader(Reader):
    def __init__(self, source: Growing, name: str) -> None:
        self._source, self._name = source, name

    def read(self, position: int, max_records: int) -> Chunk:
        indexes = list(range(position + 1, self._source.written[self._name] + 1))
        return Chunk(
            indexes,
            [{"ts": index * SECOND} for index in indexes],
            indexes[-1] if indexes else position,
            caught_up=self._source.caught_up,
        )


class NoConsumers:
    """What is read goes nowhere."""

    def drops_late(self, stream: str) -> bool:
        return True

    def split(self, *given: Any) -> Any:
        return [], []


def source(outside: Any, *names: str, store: SimStore | None = None) -> SourceOperator:
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts")
    fanout: Any = NoConsumers()
    partitions = [Partition(name) for name in names or ("a",)]
    parts = SourceParts(
        "p",
        "source.s",
        stream,
        outside,
        lambda: partitions,
        lambda name: True,
        fanout,
        Timestamps(stream, None),
    )
    return SourceOperator(parts, store or SimStore({}), 0)


def test_a_partition_is_looked_at_less_often_when_it_has_been_silent_for_long() -> None:
    silent = Silent()
    operator = source(silent)
    store = SimStore({})
    reads: dict[int, int] = {}
    for now_us in range(0, 20 * SECOND, 10_000):
        if operator.wakes_at(now_us) <= now_us:
            operator.run(Bundle(1, now_us, 0, [], Overlay(store), {}))
        reads[now_us // SECOND] = silent.reads
    assert reads[0] == 50
    assert reads[19] - reads[18] == 10


def test_only_looks_that_found_nothing_make_a_partition_idle() -> None:
    """Two partitions, of which a bundle reads one: who was not looked at during a pause of the
    worker is not silent."""
    written = {"a": 1, "b": 1}
    operator = source(Growing(written), "a", "b")
    everything = pauses(written, operator)
    assert everything == []


def pauses(written: dict[str, int], operator: SourceOperator) -> list[int]:
    """Both partitions grow once a second; every few seconds the worker gets no time for up to a
    minute. The times at which the source held less than the records that had been written and not
    been read."""
    random, now_us, wrong, store = Random(3), 0, [], SimStore({})
    while now_us < 600 * SECOND:
        now_us += SECOND if random.random() < 0.9 else random.randint(1, 60) * SECOND
        for name in written:
            written[name] = now_us // SECOND
        for _ in range(2):
            bundle = Bundle(1, now_us, 0, [], Overlay(store), {})
            operator.run(bundle)
            for chunk in bundle.chunks:
                chunk.finished = True
            if (
                operator.hold(now_us).at
                > min(part.position for part in operator.partitions.awake.values()) * SECOND
            ):
                wrong.append(now_us)
    return wrong


def test_a_source_at_rest_is_not_silent() -> None:
    operator, store = source(Silent()), SimStore({})
    for now_us in range(0, 4 * SECOND, SECOND):
        operator.run(Bundle(1, now_us, 0, [], Overlay(store), {}))
    before = operator.hold(4 * SECOND)
    operator.rest(True, 4 * SECOND)
    assert operator.hold(400 * SECOND) == before
    operator.rest(False, 400 * SECOND)
    operator.run(Bundle(1, 400 * SECOND, 0, [], Overlay(store), {}))
    assert operator.hold(400 * SECOND) == before


def test_the_story_of_pauses_would_notice_time_without_looks_as_silence() -> None:
    """The deliberate mistake: who asks what holds the watermark takes the time since the last
    record for silence."""
    right = SourceOperator.hold

    def wrong(self: SourceOperator, now_us: int) -> Any:
        for part in self.partitions.awake.values():
            part.silence.looked_at_us = max(part.silence.looked_at_us, now_us)
        return right(self, now_us)

    with replaced(SourceOperator, "hold", wrong):
        written = {"a": 1, "b": 1}
        assert pauses(written, source(Growing(written), "a", "b"))


def test_an_idle_partition_keeps_no_watermark_while_another_has_something_to_say() -> None:
    written = {"a": 2, "b": 2}
    operator, store = source(Growing(written), "a", "b"), SimStore({})
    for second in range(2, 100):
        written["b"] = second
        for index in range(20):
            bundle = Bundle(1, second * SECOND + index * 50_000, 0, [], Overlay(store), {})
            operator.run(bundle)
            for chunk in bundle.chunks:
                chunk.finished = True
    assert operator.hold(100 * SECOND).at == 99 * SECOND


class Ending(Growing):
    """Its readers know where they stop."""

    def open(self, partition: Partition) -> GrowingReader:
        return EndingReader(self, partition.name)


class EndingReader(GrowingReader):
    def stop_at(self, end: tuple[int, ...]) -> None:
        self.end = end[0]

    def reached(self, position: int) -> bool:
        return position >= self.end

    def read(self, position: int, max_records: int) -> Chunk:
        read = super().read(position, max_records)
        indexes = [index for index in read.positions if index <= self.end]
        return Chunk(
            indexes, read.values[: len(indexes)], max([position, *indexes]), caught_up=True
        )


def test_a_run_that_catches_up_takes_the_end_of_a_partition_for_silence_at_once() -> None:
    outside = Ending({"a": 2, "b": 9})
    plain = source(outside)._parts
    ends = [Partition("a", (4,)), Partition("b", (7,))]
    operator = SourceOperator(
        replace(plain, partitions=lambda: ends, to_the_ends=True), SimStore({}), 0
    )
    operator.catch_up(True)
    assert operator.unfinished() == 2

    def looks(now_us: int) -> int:
        for _ in range(4):
            bundle = Bundle(1, now_us, 0, [], Overlay(SimStore({})), {})
            operator.run(bundle)
            for chunk in bundle.chunks:
                chunk.finished = True
        return operator.unfinished()

    assert looks(SECOND) == 1, "a has written less than its end: a broker that was slow to answer"
    assert operator.hold(SECOND).at < IDLE_TIME
    outside.written["a"] = 6
    assert looks(3600 * SECOND) == 0
    hold = operator.hold(3600 * SECOND)
    assert (hold.at, hold.idle_us) == (IDLE_TIME, 7 * SECOND - plain.stream.max_delay_us)


def test_who_says_that_there_is_no_more_for_now_keeps_no_partition_unopened() -> None:
    for caught_up in (False, True):
        outside = Growing({"a": 2})
        outside.caught_up = caught_up
        operator = source(outside)
        operator.run(Bundle(1, SECOND, 0, [], Overlay(SimStore({})), {}))
        [part] = operator.partitions.awake.values()
        assert (part.position, part.behind) == (2, not caught_up)


def test_a_source_learns_which_positions_are_committed_once_they_are_durable() -> None:
    grows = Growing({"a": 3})
    store = SimStore({})
    operator = source(grows, "a", store=store)
    for number in range(1, 4):
        bundle = Bundle(number, number * SECOND, 0, [], Overlay(store), {})
        operator.run(bundle)
        store.apply(*bundle.overlay.take())
        for chunk in bundle.chunks:
            chunk.finished = True
    operator.durable(1, 3 * SECOND)
    assert grows.told == [], "the read is applied, and its position in no durable commit"
    operator.durable(2, 3 * SECOND)
    assert grows.told == [("a", 3)]
    operator.durable(3, 3 * SECOND)
    assert grows.told == [("a", 3)]
    source(grows, "a", store=store).run(Bundle(1, 4 * SECOND, 0, [], Overlay(store), {}))
    assert grows.told == [("a", 3)] * 2, "the former owner may have died before it told"


SIDES = "source.events.sides"


def held_back(store: SimStore) -> SourceOperator:
    """A source whose records are enriched with a table that nobody has heard of."""
    plain = source(Growing({"a": 3}))._parts
    first = ReadFirst(frozenset({SIDES}))
    return SourceOperator(replace(plain, first=first, first_owner=False), store, 0)


def reads(operator: SourceOperator, now_us: int) -> int:
    bundle = Bundle(1, now_us, 0, [], Overlay(SimStore({})), {})
    if operator.wakes_at(now_us) <= now_us:
        operator.run(bundle)
    return len(bundle.chunks)


def test_nothing_is_read_before_the_end_of_a_table_is_heard() -> None:
    operator = held_back(SimStore({}))
    assert operator.first is not None
    heard = Watermarks()
    for now_us, watermark in ((SECOND, 0), (9 * SECOND, IDLE_TIME)):
        heard.rise({SIDES: watermark})
        operator.first.update(heard)
        assert reads(operator, now_us) == 0
        assert operator.hold(now_us).holder == "waits for table sides, which is read first"
        assert operator.wakes_at(now_us) > now_us, "it does not spin"
    heard.rise({SIDES: MAX_TIME})
    operator.first.update(heard)
    assert operator.wakes_at(9 * SECOND) <= 9 * SECOND, "now it reads"
    assert reads(operator, 9 * SECOND) == 1
    assert "table" not in operator.hold(9 * SECOND).holder


def test_a_source_that_is_held_back_is_not_silent() -> None:
    operator = held_back(SimStore({}))
    before = operator.hold(0).at
    assert [reads(operator, now_us) for now_us in range(0, 60 * SECOND, SECOND)] == [0] * 60
    assert operator.hold(60 * SECOND).at == before < IDLE_TIME


def test_what_is_read_again_for_a_savepoint_waits_for_no_table() -> None:
    """The table rests as well, so it would never come to its end."""
    operator = held_back(SimStore({}))
    operator.catch_up(True)
    operator.rest(True, SECOND)
    assert reads(operator, SECOND) == 1
