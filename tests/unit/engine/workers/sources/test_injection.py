"""Records that clients inject into a cluster in memory, while answers get lost and everything
crashes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.grpc.injection_client import InjectionResult, OutsideRecord
from millwheel.core.formats.id_runs import marks_from
from millwheel.core.formats.store_layout import RUNS
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import MAX_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.shard.seen_ids import SeenIds
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import UnavailableError
from millwheel.testing import PipelineHarness
from millwheel.tools.client import inject as inject_module
from millwheel.tools.client.inject import Identified, Injecting
from tests.sim.mistakes import replaced

PIPELINE = """
pipeline: p
streams:
  given:
    source: {injection: {}}
    timestamp: {field: t, unit: us}
    watermark: {max_future: never, max_delay: 3650d, idle_after: IDLE}
ID
computations:
  count: {input: {given: {key: k}}, map: {k: k}, output: out}
sinks:
  out: {stdout: {}}
"""
HOUR = 3600 * SECOND
TIMELY = """
pipeline: p
streams:
  given:
    source: {injection: {}}
    timestamp: {field: t, unit: us}
    watermark: {max_future: never, max_delay: 10us, idle_after: 5s}
computations:
  passed: {input: {given: {key: k}}, map: {k: k, t: t}, output: out}
sinks:
  out: {stdout: {}}
"""
TIMES = [100, 95, 89, 120, 109, 110, 111, 50, 130, 119, 121, 200, 0, 190]
LATE = [89, 109, 50, 119, 0]


class World:
    """A cluster as clients see it: each call that is not answered was taken or not, and whoever
    took it may be dead."""

    def __init__(
        self,
        folder: Path,
        fields: str = "",
        idle_after: str = "5s",
        pipeline: str = PIPELINE,
        **options: Any,
    ) -> None:
        (folder / "p.yaml").write_text(
            pipeline.replace("IDLE", idle_after).replace("ID", f"    {fields}".rstrip(", "))
        )
        self.harness = PipelineHarness(
            folder / "p.yaml", run_sources=True, now=1_000 * HOUR, **options
        )
        self.cluster = self.harness._cluster
        self.trouble: Callable[[], str] = str
        self.lock = threading.Lock()

    def look(self) -> tuple[RangeTable | None, Mapping[str, str]]:
        return self.cluster._tables["source.given"], {name: name for name in self.cluster._workers}

    def inject(
        self, address: str, stream: str, shard: str, records: Sequence[OutsideRecord]
    ) -> InjectionResult:
        with self.lock:
            trouble = self.trouble()
            if trouble == "lost":
                raise UnavailableError("lost on the way")
            answers: list[InjectionResult] = []

            def answer(*figures: Any) -> None:
                answers.append(InjectionResult(*figures))

            values, ids = [record.value for record in records], [record.id for record in records]
            if address not in self.cluster._workers:
                raise UnavailableError("dead")
            self.cluster.worker(address).post(ev.Injected(stream, shard, values, ids, answer))
            self.cluster.settle()
            if "crash" in trouble:
                self.harness.crash()
            if trouble or not answers:
                raise UnavailableError("no answer")
            return answers[0]

    def send(self, lines: Sequence[bytes], identified: Identified) -> InjectionResult:
        sending = Injecting("given", self, self.look)
        try:
            return sending.send(identified.records(lines))
        finally:
            sending.close()

    def pass_time(self, by_us: int) -> None:
        self.harness.advance_processing_time(self.cluster.clock.now + by_us)

    def counted(self) -> Counter[str]:
        return Counter(row["k"] for row in self.harness.read("out"))

    def remembered(self) -> int:
        shards = self.cluster.shards_of("source.given")
        return sum(len(marks_from(run)) for shard in shards for _, run in shard.store.scan(RUNS))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inject_module, "_RETRY_S", 0.0)


def story(folder: Path, seed: int, fields: str, field: str) -> None:
    """Some clients, some of whose lines are alike; whatever happens, each record counts once."""
    rng, world, wanted = random.Random(seed), World(folder, fields), Counter[str]()
    world.trouble = lambda: rng.choice(["", "", "", "lost", "unanswered", "crash"])
    number = 0
    with world.harness:
        for _ in range(6):
            lines = []
            for _ in range(rng.randint(1, 8)):
                key, number = rng.choice("abc"), number + 1
                again = rng.choice([1, 1, 2])
                at = rng.choice([0, world.cluster.clock.now, 10 * world.cluster.clock.now])
                lines += [
                    f'{{"k": "{key}", "t": {at}, "id": "{number if field else ""}"}}'.encode()
                ] * again
                wanted[key] += 1 if field else again
            world.send(lines, Identified(field))
            world.pass_time(rng.randint(0, 10) * SECOND)
        assert world.counted() == wanted


@pytest.mark.parametrize(("fields", "field"), [("", ""), ("id: id", "id")])
@pytest.mark.parametrize("seed", range(6))
def test_each_injected_record_counts_once_whatever_gets_lost(
    tmp_path: Path, seed: int, fields: str, field: str
) -> None:
    story(tmp_path, seed, fields, field)


def ids_by_line() -> AbstractContextManager[None]:
    """Lines that are alike are one record."""
    return replaced(Identified, "_next_id", lambda self, line: line.decode())


def new_ids_for_each_try() -> AbstractContextManager[None]:
    """What is sent again has another number than before."""
    send = Injecting._send_part

    def again(self: Injecting, part: Any) -> Any:
        done, left = send(self, part)
        return done, [OutsideRecord(f"{record.id}'", record.value) for record in left]

    return replaced(Injecting, "_send_part", again)


def ids_forgotten_by_the_watermark() -> AbstractContextManager[None]:
    """A source, which has no watermark before it, forgets all ids when it first hears of one."""

    def forget(self: Shard) -> None:
        if self.seen_ids is not None and self.watermark.input > MIN_TIME:
            self.seen_ids.forget_before(min(self.watermark.input, MAX_TIME - 1))

    return replaced(Shard, "forget_old_ids", forget)


def ids_never_forgotten() -> AbstractContextManager[None]:
    """What a source has seen stays for ever."""
    return replaced(SeenIds, "forget_before", lambda self, at: None)


def stories(folder: Path) -> None:
    for seed in range(6):
        story(folder, seed, "", "")


def first_watermark(folder: Path) -> None:
    """Records come before anything is known of watermarks, and are sent again afterwards."""
    world = World(folder)
    with world.harness:
        sources = world.cluster.shards_of("source.given")
        for shard in sources:
            shard.watermark.input = MIN_TIME
        for _ in range(2):
            world.send([b'{"k": "a", "t": 1}'], Identified("", "monday"))
            for shard in sources:
                shard.watermark.input = MAX_TIME
                shard.forget_old_ids()
        assert world.counted() == {"a": 1}


def horizon(folder: Path) -> None:
    """An id is remembered for its horizon after it came, by the clock, and not for ever. Silence is
    not measured: to look for it four times a second for a day would take half a minute, and no id
    depends on it."""
    world = World(folder, "id: {field: id, horizon: 1h},", idle_after="never")
    with world.harness:
        for _ in range(3):
            world.send([b'{"k": "a", "t": 1, "id": "x"}'], Identified("id"))
            world.pass_time(HOUR // 3 - SECOND)
            world.harness.crash()
        assert world.counted() == {"a": 1}
        for number in range(20):
            world.send([b'{"k": "b", "t": 1, "id": "%d"}' % number], Identified("id"))
            world.pass_time(HOUR)
        assert world.remembered() <= 4


@pytest.mark.parametrize("promise", [first_watermark, horizon])
def test_ids_are_remembered_as_long_as_a_client_may_repeat_them(
    tmp_path: Path, promise: Callable[[Path], None]
) -> None:
    promise(tmp_path)


@pytest.mark.parametrize(
    ("mistake", "promise"),
    [
        (ids_by_line, stories),
        (new_ids_for_each_try, stories),
        (ids_forgotten_by_the_watermark, first_watermark),
        (ids_never_forgotten, horizon),
    ],
)
def test_the_mistakes_that_lost_or_doubled_records_are_caught(
    tmp_path: Path,
    mistake: Callable[[], AbstractContextManager[None]],
    promise: Callable[[Path], None],
) -> None:
    with mistake(), pytest.raises(AssertionError):
        promise(tmp_path)


def in_one_shard(folder: Path) -> World:
    """A record is late there when it is more than 10 us behind the newest one before it."""
    return World(folder, pipeline=TIMELY, shards=1, workers=1)


def lines(times: Sequence[int]) -> list[bytes]:
    return [f'{{"k": "a", "t": {at}}}'.encode() for at in times]


def times_of(world: World, stream: str) -> list[int]:
    return [row["t"] for row in world.harness.read(stream)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 14])
def test_who_is_late_does_not_depend_on_how_much_is_injected_at_once(
    tmp_path: Path, size: int
) -> None:
    world = in_one_shard(tmp_path)
    with world.harness:
        for start in range(0, len(TIMES), size):
            world.send(lines(TIMES[start : start + size]), Identified(""))
        assert times_of(world, "out") == [at for at in TIMES if at not in LATE]
        assert world.harness.counters["late"] == len(LATE)


@pytest.mark.parametrize("seconds", [0, 2, 20])
def test_how_long_nothing_was_injected_does_not_decide_what_is_late(
    tmp_path: Path, seconds: int
) -> None:
    """A silent stream lets event time pass, as a silent file does; whoever closed a window
    meanwhile judges what comes then."""
    world = in_one_shard(tmp_path)
    with world.harness:
        world.send(lines([100]), Identified(""))
        world.pass_time(seconds * SECOND)
        world.send(lines([91, 89]), Identified(""))
        assert times_of(world, "out") == [100, 91]


def test_injected_records_have_the_time_of_their_arrival_if_that_is_asked(tmp_path: Path) -> None:
    """With other copies of a record, and after a crash, the first time counts."""
    timed = TIMELY.replace("timestamp: {field: t, unit: us}", "timestamp: arrival")
    timed = timed.replace(
        "    watermark: {max_future: never, max_delay: 10us, idle_after: 5s}\n", ""
    )
    timed = timed.replace("map: {k: k, t: t}", "window: {tumbling: 10s}, aggregate: {n: count}")
    world = World(tmp_path, pipeline=timed, shards=1, workers=1)
    with world.harness:
        began_us = world.cluster.clock.now
        world.send(lines([1, 2]), Identified(""))
        world.pass_time(4 * SECOND)
        world.send(lines([3]), Identified(""))
        world.harness.crash()
        world.pass_time(5 * SECOND)
        assert world.harness.read("out") == []
        world.pass_time(2 * SECOND)
        assert [(row["window_start"], row["n"]) for row in world.harness.read("out")] == [
            (began_us, 3)
        ]
        assert world.harness.counters.get("late", 0) == 0


def test_injected_times_are_read_as_they_are_declared(tmp_path: Path) -> None:
    timed = TIMELY.replace(
        "    timestamp: {field: t, unit: us}\n", "    timestamp: t\n    fields: {t: timestamp}\n"
    )
    world = World(tmp_path, pipeline=timed, shards=1, workers=1)
    with world.harness:
        texts = ("1970-01-01T00:00:00.000100Z", "1970-01-01T01:00:00.000101+01:00", "never")
        world.send([f'{{"k": "a", "t": "{text}"}}'.encode() for text in texts], Identified(""))
        assert [row["t"] for row in world.harness.read("out")] == [100, 101]
        [letter] = world.harness.read(DEAD_LETTERS)
        assert "field 't' is declared as timestamp: the timestamp 'never'" in letter["reason"]
