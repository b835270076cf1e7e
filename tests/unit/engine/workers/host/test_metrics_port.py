from __future__ import annotations

import queue
import threading
from time import monotonic
from typing import Any

import msgspec

from millwheel.core.tracing import SpanCounts
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Doing
from millwheel.engine.workers.host.metrics_port import Observed, StepStanding
from millwheel.engine.workers.threads.journal import JournalFigures
from tests.unit.engine.workers.loop.stand import live


class Loop:
    """Answers as the loop would, when ``answers`` is set."""

    def __init__(self) -> None:
        self.answers = True
        self.posted: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()

    def post(self, event: ev.Event) -> None:
        self.posted.put(event)
        if self.answers and isinstance(event, ev.FiguresAsked):
            event.answer([live()[1]], 7)


class Calls:
    """Stands for :class:`Hangs`: one operator, in a call or not."""

    def __init__(self, key: Any = None) -> None:
        self.key = key

    def watched(self) -> Any:
        return iter([(Place(), self)])

    def busy(self) -> bool:
        return self.key is not None

    def doing(self) -> Doing:
        return Doing("record", self.key, b"")


class Place:
    node, shard = "work", "work-0"


def observed(loop: Loop, calls: Calls) -> Observed:
    journal = JournalFigures()
    journal.seconds.add(0.002)
    journal.size_bytes = 77
    return Observed({"process": "worker-0"}, loop.post, journal, calls)  # type: ignore[arg-type]


def test_a_step_that_does_not_end_leaves_the_last_figures_and_says_how_long_it_takes() -> None:
    loop = Loop()
    seen = observed(loop, Calls())
    seen.begins()
    seen.ended()
    text = seen.metrics().decode()
    assert 'millwheel_shards{life="live",process="worker-0"} 1.0' in text
    assert 'millwheel_journal_bytes_total{process="worker-0"} 77.0' in text
    assert 'millwheel_step_running_seconds{process="worker-0"} 0.0' in text
    assert 'millwheel_health_ratio{process="worker-0"} ' in text
    loop.answers = False
    seen._began_s = monotonic() - 60
    assert 'millwheel_health_ratio{process="worker-0"} 0.0' in seen.metrics().decode(), (
        "a step of a minute is bad"
    )
    seen.begins()
    text = seen.metrics().decode()
    assert 'millwheel_shards{life="live",process="worker-0"} 1.0' in text
    assert 'millwheel_step_running_seconds{process="worker-0"} 0.0\n' not in text


def test_a_call_that_does_not_return_is_named_with_its_key_and_line() -> None:
    seen = observed(Loop(), Calls(("user", 7)))
    seen.begins()
    entered, leave = threading.Event(), threading.Event()

    def ask() -> None:
        entered.wait()
        answers.append(msgspec.json.decode(seen.standing(), type=StepStanding))
        leave.set()

    answers: list[StepStanding] = []
    threading.Thread(target=ask).start()
    entered.set()
    assert leave.wait(5)
    [standing] = answers
    assert [(call.node, call.shard, call.key) for call in standing.calls] == [
        ("work", "work-0", "('user', 7)")
    ]
    assert "test_metrics_port.py" in standing.where
    assert standing.step_s > 0


def test_a_loop_between_two_steps_stands_in_no_call() -> None:
    standing = msgspec.json.decode(observed(Loop(), Calls()).standing(), type=StepStanding)
    assert standing == StepStanding()


def test_spans_are_counted_where_there_are_any() -> None:
    assert "millwheel_spans" not in observed(Loop(), Calls()).metrics().decode()
    journal = JournalFigures()
    counts = SpanCounts(9, 2, 1)
    seen = Observed({"process": "w"}, Loop().post, journal, Calls(), lambda: counts)  # type: ignore[arg-type]
    text = seen.metrics().decode()
    for name, value in (
        ("spans_total", 9.0),
        ("spans_dropped_total", 2.0),
        ("spans_left_out_total", 1.0),
    ):
        assert f'millwheel_{name}{{process="w"}} {value}' in text
