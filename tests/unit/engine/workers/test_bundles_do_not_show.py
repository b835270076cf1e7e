"""What a callback sees of state and timers is a function of key, time and order, whatever arrived
together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.testing import PipelineHarness

SECOND = 1_000_000
PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: {field: at, unit: us}, watermark: {max_delay: 1d}}
computations:
  c: {input: {hits: {key: user}}, callback: "everything:Everything", max_attempts: 2,
    ORDER output: out}
sinks:
  out: {files: {path: "out"}}
"""
CODE = """
from millwheel import Computation, ListState, MapState, ValueState
from millwheel.core.model.records import Domain

SECOND = 1_000_000


class Everything(Computation):
    number = ValueState(int, ttl="10s")
    notes = ValueState(list[int], default=list, ttl="7s")
    items = ListState(int, ttl="10s")
    ages = MapState(int, ttl="10s")
    marks = MapState(dict, ttl="5s")
    always = ValueState(int, default=0)

    def process_record(self, ctx, record):
        for step in record.value["do"]:
            self.do(ctx, record.timestamp, *step)

    def process_timer(self, ctx, timer):
        self.always.set(self.always.get() + 1)
        self.do(ctx, timer.at, "look", timer.tag, timer.at, ctx.now)
        for step in TIMERS[timer.tag]:
            self.do(ctx, timer.at, *step)

    def do(self, ctx, at, what, *of):
        if what == "look":
            ctx.produce("out", {
                "user": ctx.key, "of": of, "number": self.number.get(), "items": list(self.items),
                "ages": dict(self.ages.items()), "always": self.always.get(),
            })
        elif what == "set":
            self.number.set(of[0])
        elif what == "clear":
            self.number.clear(), self.items.clear(), self.ages.clear()
        elif what == "note":
            self.notes.get().append(of[0])
            ctx.produce("out", {"user": ctx.key, "notes": self.notes.get()})
        elif what == "append":
            self.items.append(of[0])
        elif what == "put":
            self.ages[of[0]] = at
        elif what == "mark":
            mark = self.marks.get(of[0])
            ctx.produce("out", {"user": ctx.key, "mark": mark})
            if mark is None:
                self.marks[of[0]] = {"n": 1}
            else:
                mark["n"] += 1
        elif what == "drop" and of[0] in self.ages:
            del self.ages[of[0]]
        elif what == "timer":
            ctx.set_timer(of[0], at + of[1] * SECOND)
        elif what == "ring":
            ctx.set_timer(of[0], ctx.now + of[1] * SECOND, Domain.PROCESSING)
        elif what == "cancel":
            ctx.cancel_timer(of[0]), ctx.cancel_timer(of[0], Domain.PROCESSING)
        elif what == "raise":
            raise ValueError("as asked")


TIMERS = {
    "a": [],
    "b": [("set", -1), ("append", -1), ("put", "x")],
    "c": [("timer", "a", 3), ("cancel", "b")],
    "d": [("timer", "b", -4), ("note", 5), ("mark", "x")],
    "e": [("set", 7), ("raise",)],
}
"""
LOOK = ("look", "")
tags = st.sampled_from("abcde")
steps = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 9)),
    st.tuples(st.just("append"), st.integers(0, 9)),
    st.tuples(st.just("put"), st.sampled_from("xyz")),
    st.tuples(st.just("drop"), st.sampled_from("xyz")),
    st.tuples(st.just("mark"), st.sampled_from("xy")),
    st.tuples(st.just("note"), st.integers(0, 9)),
    st.tuples(st.just("timer"), tags, st.integers(-12, 20)),
    st.tuples(st.just("ring"), tags, st.integers(0, 20)),
    st.tuples(st.just("cancel"), tags),
    st.just(("clear",)),
    st.just(LOOK),
)
records = st.fixed_dictionaries(
    {
        "user": st.sampled_from("ab"),
        "at": st.integers(0, 60).map(lambda at: at * SECOND),
        "do": st.lists(steps, max_size=4).map(lambda do: [LOOK, *do]),
    }
)
arrivals = st.tuples(st.just("push"), st.lists(records, min_size=1, max_size=5))
rises = st.tuples(st.just("watermark"), st.integers(1, 25))
ticks = st.tuples(st.just("clock"), st.integers(1, 25))
stories = st.lists(st.one_of(arrivals, arrivals, rises, ticks), min_size=1, max_size=8)
BROKEN = {"user": "broken", "at": 0, "do": [("raise",)]}
Story = Sequence[tuple[str, Any]]


@pytest.fixture(
    scope="module", params=["", "order_by: timestamp,"], ids=["as they come", "in order"]
)
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    (folder / "everything.py").write_text(CODE)
    (folder / "p.yaml").write_text(PIPELINE.replace("ORDER", request.param))
    return folder / "p.yaml"


def told(
    path: Path,
    story: Story,
    *,
    apart: bool = False,
    broken: bool = False,
    crash_every: int | None = None,
) -> Any:
    """What was said and is remembered of each user. ``apart``: one record at a time, and a second
    at a time. ``broken``: each bundle has a record of somebody else that fails."""
    with PipelineHarness(path, shards=1, workers=1, now=0, crash_every=crash_every) as harness:
        watermark = clock = 0
        for what, of in story:
            if what == "push":
                for bundle in (
                    [[record] for record in of] if apart else [[*of, BROKEN] if broken else of]
                ):
                    harness.push("hits", bundle)
            elif what == "watermark":
                for rise in [1] * of if apart else [of]:
                    watermark += rise
                    harness.advance_watermark(watermark * SECOND)
            else:
                for tick in [1] * of if apart else [of]:
                    clock += tick
                    harness.advance_processing_time(clock * SECOND)
        rows = harness.read("out")
        kept = [
            [index for index in harness.remembered()["c"].items() if b"source.hits" not in index[0]]
        ]
        harness.finish()
        kept.append([*harness.remembered()["c"].items()])
        return {user: [row for row in rows if row["user"] == user] for user in "ab"}, kept


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(stories)
def test_what_arrives_together_shows_nowhere(pipeline: Path, story: Story) -> None:
    together = told(pipeline, story)
    assert told(pipeline, story, apart=True) == together


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(stories, st.integers(3, 40))
def test_neither_a_failing_neighbour_nor_a_crash_shows(
    pipeline: Path, story: Story, crash_every: int
) -> None:
    together = told(pipeline, story)
    assert told(pipeline, story, broken=True)[0] == together[0]
    assert told(pipeline, story, crash_every=crash_every) == together
