"""Parts of divided keys whose windows share records: pieces, each emitted once."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.aggregates.aggregation import PartialAggregation
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.choice import make_machine
from millwheel.core.machines.slices import PiecesMachine
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import AggregateSpec, AggregationStage
from millwheel.core.windows.contract import Effects, Times, Windowing
from millwheel.core.windows.windows import Cumulative, Tumbling, Window, WindowPieces


class Bench:
    """One key of one machine."""

    def __init__(self, pieces: WindowPieces) -> None:
        specs = [AggregateSpec("n", "count", "", "", {}), AggregateSpec("s", "sum", "x", "", {})]
        aggregation = compile_aggregation(
            specs, compile_expression, None, "x < 100", AggregationStage.PARTIAL
        )
        assert isinstance(aggregation, PartialAggregation)
        machine = make_machine(Windowing(pieces), aggregation)
        assert isinstance(machine, PiecesMachine)
        self.machine, self.state, self.watermark = machine, dict[Any, Any](), MIN_TIME
        self.timers: dict[str, int] = {}

    def push(self, *records: tuple[int, int]) -> list[Any]:
        rows = [({"x": x}, at) for x, at in records]
        return self._done(
            lambda effects: self.machine.on_records(self.state, "k", rows, self._times(), effects)
        )

    def advance(self, watermark: int) -> list[Any]:
        self.watermark, found = watermark, []
        for tag, at in sorted(self.timers.items(), key=lambda each: each[1]):
            if at < watermark:
                del self.timers[tag]
                given = ("k", tag, Domain.EVENT, at, self._times())
                found += self._done(
                    lambda effects, given=given: self.machine.on_timer(self.state, *given, effects)
                )
        return found

    def _times(self) -> Times:
        return Times(self.watermark, 0)

    def _done(self, call: Any) -> list[Any]:
        effects = Effects()
        call(effects)
        for timer in effects.timers:
            assert timer.at is not None
            self.timers[timer.tag] = timer.at
        assert not effects.rejected
        assert not effects.late
        return [
            (each.window, each.timestamp, WHOLE.decode(each.result["acc"])[0])
            for each in effects.panes
        ]


def test_a_piece_is_emitted_once_as_the_watermark_passes_its_end_and_leaves_nothing_behind() -> (
    None
):
    bench = Bench(WindowPieces(Tumbling(10).window))
    assert bench.push((1, 3), (1, 12), (200, 4)) == []
    assert bench.push((1, 9)) == []
    assert bench.machine.open_windows(bench.state, list(bench.state)) == [
        Window(0, 10),
        Window(10, 20),
    ]
    assert bench.advance(9) == []
    assert bench.advance(10) == [(Window(0, 10), 9, 2)]
    assert bench.advance(50) == [(Window(10, 20), 19, 1)]
    assert bench.state == {}
    assert bench.timers == {}


def test_what_comes_behind_the_watermark_is_passed_on_at_once_however_late_it_is() -> None:
    bench = Bench(WindowPieces(Tumbling(10).window))
    bench.push((1, 3))
    bench.advance(25)
    assert bench.push((1, 3), (1, 21), (1, 4), (1, 14)) == [
        (Window(0, 10), 9, 2),
        (Window(10, 20), 19, 1),
    ]
    assert bench.advance(30) == [(Window(20, 30), 29, 1)]


def test_pieces_that_are_asked_for_at_once_wait_for_nothing_and_tell_their_newest_record() -> None:
    bench = Bench(WindowPieces(Tumbling(10).window, at_once=True))
    assert bench.push((1, 3), (1, 7), (1, 12)) == [(Window(0, 10), 7, 2), (Window(10, 20), 12, 1)]
    assert bench.state == {}


@pytest.mark.parametrize("at", [0, 9, 10, 19, 20, 24])
def test_pieces_of_cumulative_windows_lie_between_two_steps(at: int) -> None:
    windows = Cumulative(25 * 20, 20)
    piece = WindowPieces(windows.step_bounds).window(at)
    assert piece.start <= at < piece.end
    for each in windows.assign(at):
        assert each.start <= piece.start
        assert piece.end <= each.end
    assert windows.assign(piece.start) == windows.assign(piece.max_timestamp)
