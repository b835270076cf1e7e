"""order_by in the real runtime, against plain Python, and through crashes at every place."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.api import Computation
from millwheel.core.formats.codec import Commit, encode_commit, encode_value
from millwheel.core.formats.store_layout import (
    STATE,
    TIMER,
    WAITING,
    key_prefix,
    timer_key,
    timer_value,
)
from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.records import Domain
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.engine.workers.state.waiting_records import ORDER_TAG, waiting_records
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.computations import computation_spec
from tests.fakes.plain_storage import SimStore
from tests.sim.workloads.base import by
from tests.sim.workloads.placed import reminded, taken
from tests.unit.engine.workers.bench import ShardBench, computation, pipeline
from tests.unit.engine.workers.operators.combinations import hit, hits, written

ORDER = """
computations:
  follow:
    input: {hits: {key: user}}
    callback: follow:Follow
    order_by: timestamp
    output: steps
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


def in_order(records: list[dict[str, Any]], user: str) -> list[tuple[str, int]]:
    """What the callback does when it is called in order: bells ring before what comes after
    them."""
    told: list[tuple[int, int, str]] = []
    mine = sorted((r for r in records if r["user"] == user), key=lambda r: r["at"])
    bells: list[int] = []
    due = None
    for record in mine:
        if due is not None and due < record["at"]:
            bells.append(due)
            told.append((due, 1, "bell"))
            due = None
        told.append((record["at"], 0, record["page"]))
        if record["page"] == "timer":
            due = record["at"] + 3
    if due is not None:
        told.append((due, 1, "bell"))
    return [(what, at) for at, _, what in told]


@given(records=hits, step=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_records_and_timers_come_in_the_order_of_their_times(
    folder: Path, records: list[dict[str, Any]], step: int
) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", records)
        assert harness.read("steps") == []
        for watermark in range(0, 60, step):
            harness.advance_watermark(watermark)
        harness.finish()
        for user in ("ann", "bob"):
            got = [(row["what"], row["at"]) for row in harness.read("steps") if row["user"] == user]
            assert [at for _, at in got] == sorted(at for _, at in got)
            assert sorted(got) == sorted(in_order(records, user))
        assert harness.counters.get("followed", 0) == len(records)


def test_a_record_waits_until_the_watermark_has_passed_it(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(20), hit(10)])
        harness.advance_watermark(20)
        assert [row["at"] for row in harness.take("steps")] == [10]
        harness.crash()
        harness.advance_watermark(21)
        assert [row["at"] for row in harness.take("steps")] == [20]
        assert harness.state("follow", "ann") == {"seen": [10, 20]}


def test_a_record_that_fails_in_its_bundle_is_a_dead_letter_of_its_own(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(3), hit(2, page="poison"), hit(1)])
        harness.finish()
        assert [row["at"] for row in harness.read("steps")] == [1, 3]
        [letter] = harness.read("dead_letters")
        assert (letter["value"], letter["stream"], letter["attempts"]) == (
            hit(2, page="poison"),
            "hits",
            3,
        )
        assert harness.counters["followed"] == 2


def test_order_survives_crashes(folder: Path) -> None:
    records = [
        hit(9),
        hit(3, page="timer"),
        hit(7),
        hit(6, user="bob"),
        hit(1),
        hit(5, page="poison"),
    ]
    assert (
        assert_survives_crashes(written(folder / "order", ORDER), {"hits": records}, every=10) > 3
    )


class _Noting(Computation):
    """Passes on the times of its records."""

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("out", record.timestamp)


def _ordering() -> ShardBench:
    work = computation(callback="bench:It", ordered=True)
    return ShardBench(_Noting, spec=pipeline(work))


def test_records_that_an_earlier_version_kept_one_by_one_come_among_the_others() -> None:
    bench = _ordering()
    bench.deliver(("a", None, 20), ("a", None, 40))
    assert bench.through() == []
    key, kept = key_prefix(STATE, "a", key_hash("a")), {}
    for number, at in ((7, 10), (8, 30), (9, 50)):
        tag = f"{ORDER_TAG}1down:{number:020d}"
        kept[key + tag.encode()] = encode_value(["events", None])
        kept[timer_key("a", key_hash("a"), Domain.EVENT, tag)] = timer_value(at, b"")
    bench.journal.append(
        encode_commit(Commit(ShardName("work-0"), Token(1), 2, list(kept.items()), []))
    )
    bench.crash()
    bench.watermark(45)
    assert bench.through() == [10, 20, 30, 40]
    bench.watermark(60)
    assert bench.through() == [50]
    assert not [k for k in bench.stored() if k[:1] in (STATE, TIMER, WAITING)]


def test_a_bundle_of_records_that_wait_is_one_entry_and_no_timer() -> None:
    bench = _ordering()
    bench.deliver(*((f"k{at}", None, at) for at in range(10, 40)))
    bench.run()
    [commit] = bench.settle()
    assert [k[:1] for k, _ in commit.puts if k[:1] in (STATE, TIMER, WAITING)] == [WAITING]
    bench.crash()
    bench.watermark(25)
    assert sorted(bench.through()) == list(range(10, 25))
    left = waiting_records(SimStore(bench.stored()))
    assert [row.at for row in left] == list(range(25, 40)), "what came waits for no next owner"
    bench.watermark(100)
    assert sorted(bench.through()) == list(range(25, 40))


_CODE = "tests.sim.workloads.placed:Reminding"


def _rows(count: int) -> list[dict[str, Any]]:
    rng, at, rows = random.Random(count), 1_000 * SECOND, []
    for n in range(count):
        at += rng.randint(0, SECOND)
        user = f"u{rng.randrange(9)}"
        do = rng.choice(["move", "move", "move", "past", "clear"])
        after = -rng.randint(0, 4 * SECOND) if do == "past" else rng.randint(1, 9 * SECOND)
        rows.append(
            {
                "u": user,
                "g": f"{user}'",
                "h": 0,
                "n": n,
                "do": do,
                "after": after,
                "ts": at - rng.randint(0, SECOND),
            }
        )
    return rows


def _pipeline(folder: Path, rows: list[dict[str, Any]]) -> PipelineSpec:
    (folder / "in.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    source = SourceSpec("files", {"path": str(folder / "in.jsonl"), "format": "jsonl"})
    stream = StreamSpec("events", source, "ts", max_delay_us=2 * SECOND)
    a = computation_spec(
        "a",
        (InputSpec("events", by("u")),),
        ("reminders", "seen"),
        callback=_CODE,
        options={"told": "reminders", "passed_on": "seen"},
    )
    b = computation_spec(
        "b", (InputSpec("seen", by("g")),), ("said",), callback=_CODE, options={"told": "said"}
    )
    streams = (stream, *(StreamSpec(name) for name in ("reminders", "seen", "said")))
    return PipelineSpec("p", streams, (a, b), (), str(folder))


def _told(rows: list[Any]) -> Counter[Any]:
    return Counter((row["key"], row["tag"], row["at"], row["items"]) for row in rows)


@pytest.mark.parametrize("crash_every", [None, 20], ids=["calm", "crashes"])
@pytest.mark.parametrize("shards", [1, 3])
def test_timers_come_among_records_by_the_watermark_at_their_line_also_behind_another_callback(
    tmp_path: Path, shards: int, crash_every: int | None
) -> None:
    rows = _rows(400)
    spec = _pipeline(tmp_path, rows)
    with PipelineHarness(spec, run_sources=True, shards=shards, crash_every=crash_every) as harness:
        harness.advance_processing_time(SECOND)
        told, passed_on = reminded(taken(rows), "u")
        assert _told(harness.read("reminders")) == told
        assert _told(harness.read("said")) == reminded(passed_on, "g")[0]
