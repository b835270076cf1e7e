"""Ids of weak productions: what is made of one record on two ways is two records."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.testing import PipelineHarness

PASS_ON = """
    from millwheel import Computation

    class To(Computation):
        def __init__(self, out):
            self.out = out

        def process_record(self, ctx, record):
            ctx.produce(self.out, {"user": ctx.key})
"""
PASS = r'callback: "to:To", options: {out: \1}, output: \1, productions: weak'
COUNT = "count: {input: {both: {key: user}}, window: global, aggregate: {n: count}, output: counts}"
TWO_WAYS = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      left: {input: {clicks: {key: user}}, PASS(a)}
      right: {input: {clicks: {key: user}}, PASS(b)}
      both: {input: {a: {key: user}, b: {key: user}}, PASS(both)}
      COUNT
"""
ONE_OUTPUT = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      left: {input: {clicks: {key: user}}, PASS(both)}
      right: {input: {clicks: {key: user}}, PASS(both)}
      COUNT
"""
TWO_STREAMS = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at, id: id}
      views: {source: {injection: {}}, timestamp: at, id: id}
    computations:
      all: {input: {clicks: {key: user}, views: {key: user}}, PASS(both)}
      COUNT
"""


@pytest.mark.parametrize(("text", "streams"), [(TWO_WAYS, 1), (ONE_OUTPUT, 1), (TWO_STREAMS, 2)])
def test_what_is_made_of_one_record_on_two_ways_is_two_records(
    tmp_path: Path, text: str, streams: int
) -> None:
    (tmp_path / "to.py").write_text(dedent(PASS_ON))
    (tmp_path / "p.yaml").write_text(
        dedent(re.sub(r"PASS\((\w+)\)", PASS, text.replace("COUNT", COUNT)))
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for stream in ("clicks", "views")[:streams]:
            harness.push(stream, [{"user": "a", "at": 1, "id": 7}, {"user": "a", "at": 2, "id": 8}])
        harness.finish()
        assert [row["n"] for row in harness.read("counts")] == [4]


# --- each production of a key has an id of its own, which a crash does not change

CODE = """
    from millwheel import Computation, ValueState

    class Ring(Computation):
        "Sets a timer for the beginning of the record's minute, which has passed: due at once."
        count = ValueState(int, default=0)

        def process_record(self, ctx, record):
            self.count.set(self.count.get() + 1)
            ctx.set_timer("minute", record.timestamp - record.timestamp % 60_000_000)

        def process_timer(self, ctx, timer):
            ctx.produce("made", {"user": ctx.key, "n": self.count.get()})

    class Chain(Computation):
        "A timer that sets itself again, three times."
        def process_record(self, ctx, record):
            ctx.set_timer("0", record.timestamp)

        def process_timer(self, ctx, timer):
            ctx.produce("made", {"user": ctx.key, "n": int(timer.tag)})
            if timer.tag != "3":
                ctx.set_timer(str(int(timer.tag) + 1), timer.at + 1_000_000)

    class Pages(Computation):
        "Two productions for each window, and a timer of its own."
        def process_window(self, ctx, key, window, records):
            ctx.produce("made", {"user": key, "n": len(records)})
            ctx.produce("made", {"user": key, "n": len(records)})
            ctx.set_timer("after", window.end)

        def process_timer(self, ctx, timer):
            ctx.produce("made", {"user": ctx.key, "n": 0})
"""
MADE = """
    pipeline: made
    streams:
      hits: {source: {injection: {}}, timestamp: at}
    computations:
      first: {input: {hits: {key: user}}, FORM, output: made, productions: KIND}
      second: {input: {STREAM: {key: user}}, filter: "1 == 1", output: out}
"""
S = 1_000_000
WINDOW = "window: {tumbling: 10s}, aggregate: {n: count}"
CALLBACKS = {
    "a timer set again for a time that has passed": 'callback: "weak_code:Ring"',
    "a timer that sets the next": 'callback: "weak_code:Chain"',
    "records in the order of time": "map: {user: user, at: at}, order_by: timestamp",
}
WINDOWS = {
    "windows": WINDOW,
    "early panes": f"{WINDOW}, trigger: {{after_watermark: {{early: {{after_count: 2}}}}}}",
    "panes that come again for late records": f"{WINDOW}, allowed_lateness: 1m",
    "retractions": f"{WINDOW}, allowed_lateness: 1m, accumulation: retracting",
    "late records that refire": f"{WINDOW}, late: refire",
    "sessions": "window: {session: 4s}, aggregate: {n: count}, late: refire",
    "count windows": "window: {count: 2}, aggregate: {n: count}",
    "windows where the result changes": (
        "window: {sliding: 4s, every: 1s, emit: changes}, aggregate: {n: count}"
    ),
    "global windows": "window: global, trigger: {repeat: {after_count: 1}}, aggregate: {n: count}",
    "windows with a callback": 'window: {tumbling: 10s}, callback: "weak_code:Pages"',
}


def tell(harness: PipelineHarness) -> None:
    for second in (62, 62, 62, 62, 63):
        harness.push("hits", {"user": "ann", "at": second * S})
    harness.advance_watermark(90 * S)
    for second in (61, 61, 62, 95):
        harness.push("hits", {"user": "ann", "at": second * S})
    harness.advance_watermark(120 * S)
    harness.finish()


def came(
    folder: Path, form: str, kind: str, stream: str = "made", **options: int
) -> tuple[Counter[str], int]:
    """What the second computation got, and how many units of work there were."""
    text = MADE.replace("FORM", form).replace("KIND", kind).replace("STREAM", stream)
    (folder / "weak_code.py").write_text(dedent(CODE))
    (folder / "p.yaml").write_text(dedent(text))
    with PipelineHarness(folder / "p.yaml", **options) as harness:
        tell(harness)
        return Counter(str(row) for row in harness.read("out")), harness.units


@pytest.mark.parametrize("form", [*CALLBACKS, *WINDOWS])
def test_no_production_is_taken_for_a_copy_of_another(tmp_path: Path, form: str) -> None:
    text = {**CALLBACKS, **WINDOWS}[form]
    strong, _ = came(tmp_path, text, "strong")
    weak, _ = came(tmp_path, text, "weak")
    assert weak == strong
    assert strong.total() > 1


@pytest.mark.parametrize(
    "form", [name for name in (*CALLBACKS, *WINDOWS) if "has passed" not in name]
)
def test_a_crash_at_any_place_neither_loses_nor_doubles_a_weak_production(
    tmp_path: Path, form: str
) -> None:
    text = {**CALLBACKS, **WINDOWS}[form]
    wanted, units = came(tmp_path, text, "weak")
    for index in range(1, units, 61):
        assert came(tmp_path, text, "weak", crash_at=index)[0] == wanted, f"unit {index}"


def test_a_crash_at_any_place_neither_loses_nor_doubles_what_leaves_a_window_aside(
    tmp_path: Path,
) -> None:
    text = f"{WINDOW}, late: {{side: aside}}"
    wanted, units = came(tmp_path, text, "weak", "aside")
    assert wanted.total() == 3
    for index in range(1, units, 61):
        assert came(tmp_path, text, "weak", "aside", crash_at=index)[0] == wanted, f"unit {index}"


def test_a_timer_keeps_its_cause_when_what_moved_it_is_taken_back() -> None:
    queue = TimerQueue(Domain.EVENT)
    queue.set("ann", "t", 5, b"first")
    index = queue.savepoint()
    queue.set("ann", "t", 5, b"second")
    queue.cancel("ann", "t")
    queue.undo_to(index)
    assert queue.pop_due(6) == Due("ann", "t", 5, Domain.EVENT, b"first")


@pytest.mark.parametrize("work", ['filter: "n < 100"', "window: {count: 1}, aggregate: {n: count}"])
def test_productions_from_unnumbered_records_arrive_though_nothing_is_remembered(
    tmp_path: Path, work: str
) -> None:
    (tmp_path / "p.yaml").write_text(
        dedent(f"""
        pipeline: ways
        streams:
          hits: {{source: {{injection: {{}}}}, timestamp: at}}
        computations:
          first:
            {{input: {{hits: {{key: k}}}}, filter: "n < 100", output: first, productions: weak}}
          second:
            input: {{first: {{key: k}}}}
            {work.replace(", aggregate", chr(10) + "            aggregate")}
            output: second
            productions: weak
            delivery: at_least_once
        """)
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("hits", {"at": 5, "k": "a", "n": 2})
        harness.finish()
        assert len(harness.read("first")) == 1
        assert len(harness.read("second")) == 1


def test_records_without_number_or_id_that_wait_for_their_order_are_all_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "twice.py").write_text(
        dedent("""
        from millwheel import Computation

        class Twice(Computation):
            def process_record(self, ctx, record):
                for n in (1, 2):
                    ctx.produce("first", {"k": ctx.key, "n": n})

        class Pass(Computation):
            def process_record(self, ctx, record):
                ctx.produce("second", record.value)
        """)
    )
    (tmp_path / "p.yaml").write_text(
        dedent("""
        pipeline: ways
        streams:
          hits: {source: {injection: {}}, timestamp: at}
        computations:
          first:
            input: {hits: {key: k}}
            callback: "twice:Twice"
            output: first
            productions: weak
            delivery: at_least_once
          second:
            {input: {first: {key: k}}, callback: "twice:Pass", order_by: timestamp, output: second}
        """)
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("hits", [{"at": 5, "k": "a"}, {"at": 5, "k": "a"}])
        harness.push("hits", {"at": 5, "k": "a"})
        harness.finish()
        assert [row["n"] for row in harness.read("second")] == [1, 2] * 3
