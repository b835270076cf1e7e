"""Steps in which too much fails: they wait, nothing of them is seen, and they are tried again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millwheel.api import Computation, ValueState
from millwheel.core.model.failures import STOP, OnError
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    InputSpec,
    PipelineSpec,
    Productions,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import WindowSpec
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.tools.testing import PipelineHarness, pipeline_harness
from tests.computations import computation_spec

SECOND = 1_000_000


class Visits(Computation):
    """Counts visits per user; cannot do what ``broken`` says."""

    broken: Any = staticmethod(lambda value: False)
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.produce("out", {"user": record.key, "count": self.seen.get()})
        ctx.set_timer("later", record.timestamp + SECOND)
        if type(self).broken(record.value):
            raise TypeError("broken")

    def process_timer(self, ctx: Any, timer: Any) -> None:
        if type(self).broken("timer"):
            raise TypeError("broken")
        ctx.produce("out", {"user": timer.key, "timer": timer.at})

    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        if type(self).broken("window"):
            raise TypeError("broken")
        ctx.produce("out", {"user": key, "window": window.start})


class Judging(Assembly):
    """As in a worker's process."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stop_broken()


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pipeline_harness, "Assembly", Judging)
    yield
    mend()


def spec(policy: OnError | None = None, window: bool = False, **fields: Any) -> PipelineSpec:
    given = {"on_error": policy} if policy is not None else {}
    key = KeySpec(KeyKind.FIELD, ("user",))
    visits = computation_spec(
        "visits",
        (InputSpec("hits", key),),
        ("out",),
        callback=f"{__name__}:Visits",
        window=WindowSpec("tumbling", {"size_us": SECOND}) if window else None,
        **given,
        **fields,
    )
    stream = StreamSpec("hits", SourceSpec("generator", {}), timestamp="at", **given)
    return PipelineSpec("p", (stream,), (visits,), (), ".")


def break_on(broken: Any) -> None:
    Visits.broken = staticmethod(broken)


def mend() -> None:
    break_on(lambda value: False)


def hits(count: int, users: int = 7) -> list[dict[str, Any]]:
    return [{"user": n % users, "at": n * 1_000, "n": n} for n in range(count)]


def counts(harness: PipelineHarness) -> list[tuple[Any, Any]]:
    return sorted((row["user"], row["count"]) for row in harness.read("out") if "count" in row)


def wanted(records: int, users: int = 7) -> list[tuple[int, int]]:
    return sorted((n % users, n // users + 1) for n in range(records))


@pytest.mark.parametrize("productions", Productions)
@pytest.mark.parametrize("crash_every", [None, 37])
def test_what_fails_too_often_is_seen_nowhere_and_is_tried_again(
    productions: Productions, crash_every: int | None
) -> None:
    break_on(lambda value: value != "timer")
    with PipelineHarness(spec(productions=productions), crash_every=crash_every) as harness:
        harness.push("hits", hits(500))
        assert harness.read("out") == harness.read(DEAD_LETTERS) == []
        mend()
        harness.crash()
        harness.finish()
        assert counts(harness) == wanted(500)
        assert harness.read(DEAD_LETTERS) == []
        assert len([row for row in harness.read("out") if "timer" in row]) == 7


def test_a_few_failures_among_many_are_dead_letters_at_once() -> None:
    break_on(lambda value: value != "timer" and value["n"] % 50 == 0)
    with PipelineHarness(spec()) as harness:
        harness.push("hits", hits(1_000))
        assert len(harness.read(DEAD_LETTERS)) == 20
        assert harness.counters["dead_letters"] == 20


def test_a_bad_shard_waits_until_the_others_show_that_its_node_is_fine() -> None:
    break_on(lambda value: value != "timer" and value["user"] == 0)
    with PipelineHarness(spec(), shards=8) as harness:
        harness.push("hits", [{"user": n % 40, "at": n * 1_000, "n": n} for n in range(8_000)])
        assert len(harness.read(DEAD_LETTERS)) == 200
        assert len(counts(harness)) == 7_800


def test_where_there_are_too_few_to_judge_by_they_are_dead_letters_after_a_second() -> None:
    break_on(lambda value: value != "timer")
    with PipelineHarness(spec()) as harness:
        harness.push("hits", hits(3))
        assert harness.read(DEAD_LETTERS) == []
        harness.advance_processing_time(SECOND)
        assert len(harness.read(DEAD_LETTERS)) == 3


def test_with_stop_the_first_failure_waits_for_ever() -> None:
    break_on(lambda value: value != "timer" and value["n"] == 400)
    with PipelineHarness(spec(STOP)) as harness:
        harness.push("hits", hits(1_000))
        harness.advance_processing_time(100 * SECOND)
        assert harness.read(DEAD_LETTERS) == []
        mend()
        harness.crash()
        assert counts(harness) == wanted(1_000)


@pytest.mark.parametrize("what", ["timer", "window"])
def test_timers_and_windows_that_fail_too_often_are_called_again(what: str) -> None:
    break_on(lambda value: value == what)
    with PipelineHarness(spec(window=what == "window")) as harness:
        harness.push("hits", hits(300, users=300))
        harness.advance_watermark(10 * SECOND)
        assert not any(what in row for row in harness.read("out"))
        assert harness.read(DEAD_LETTERS) == []
        mend()
        harness.crash()
        assert len([row for row in harness.read("out") if what in row]) == 300


@pytest.mark.parametrize("field", ["at", "user"])
def test_lines_that_cannot_be_used_and_keys_that_cannot_be_had_hold_their_source(
    field: str,
) -> None:
    with PipelineHarness(spec()) as harness:
        harness.push(
            "hits",
            [{name: value for name, value in hit.items() if name != field} for hit in hits(300)],
        )
        assert harness.read("out") == harness.read(DEAD_LETTERS) == []
        (failing,) = {
            call.judged
            for shard in harness._cluster.shards_of("source.hits")
            for call in shard.verdicts._failed
        }
        assert failing == ("source.hits" if field == "at" else "visits")


def test_nothing_passes_a_step_that_waits() -> None:
    break_on(lambda value: value != "timer")
    with PipelineHarness(spec(), shards=1, workers=1) as harness:
        harness.push("hits", hits(500))
        (shard,) = harness._cluster.shards_of("visits")
        assert shard.commits.waiting is not None
        harness.advance_watermark(100 * SECOND)
        assert shard.watermark.hold(harness.now).at <= 0


_COUNTED = """
pipeline: counted
streams:
  hits:
    source: {{files: {{path: {folder}/in, format: jsonl}}}}
    timestamp: at
    {fields}
computations:
  sums:
    input: {{hits: {{key: user}}}}
    {windowing}
    aggregate: {{n: {{sum: n}}}}
"""


_WINDOWINGS = [
    "window: {tumbling: 1s}\n    output: out",
    "window: {session: 500us}\n    output: out",
    "window: {sliding: 2s, every: 1s}\n    output: out",
    "window: {cumulative: 1m, every: 1s}\n    output: out",
    "window: {count: 3}\n    output: out",
    "window: {tumbling: 1s}\n    allowed_lateness: 1s\n    output: out",
    "slices: {every: 1s, keep: 1h, levels: [1s]}",
]


@pytest.mark.parametrize(
    ("windowing", "users", "is_declared"),
    [
        (windowing, users, number % 2 == (users == 7))
        for number, windowing in enumerate(_WINDOWINGS)
        for users in (7, 2_000)  # groups are sent, records are sent
    ],
)
def test_a_few_failures_are_few_in_columns_and_in_groups_too(
    tmp_path: Path, windowing: str, users: int, is_declared: bool
) -> None:
    """All records count as tried, also those that operators take out of a bundle at once, and those
    of groups."""
    (tmp_path / "in").mkdir()
    given = [
        {key: value for key, value in row.items() if key != "n" or row["n"] % 20}
        for row in hits(6_000, users)
    ]
    (tmp_path / "in" / "hits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    fields = "fields: {user: int, at: int, n: int}" if is_declared else ""
    path = tmp_path / "p.yaml"
    path.write_text(_COUNTED.format(folder=tmp_path, fields=fields, windowing=windowing))
    with PipelineHarness(path, run_sources=True) as harness:
        harness.advance_processing_time(2 * SECOND)
        assert harness.counters["records_in"] == 6_000
        assert harness.counters["dead_letters"] == 300
        assert len(harness.read(DEAD_LETTERS)) == 300
