from __future__ import annotations

import pytest

from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Operator, SinkNews
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.windows.callback import WindowCallbackOperator


class Plain(Operator):
    def run(self, bundle: Bundle) -> None: ...


def test_an_operator_that_only_runs_takes_everything_and_waits_for_nothing() -> None:
    operator = Plain()
    assert operator.intake(7, 0, 0) == 7
    assert (operator.wakes_at(0), operator.due_at(), operator.hold(0).at) == (
        MAX_TIME,
        MAX_TIME,
        MAX_TIME,
    )
    assert (operator.unfinished(), operator.paused, operator.emits_at_floor) == (0, False, False)
    assert operator.watched() is None


def test_a_latency_is_reported_once() -> None:
    news = SinkNews()
    news.latencies_ms.append(1.0)
    assert (news.take_latencies(), news.take_latencies()) == ([1.0], [])
    assert SinkNews().latencies_ms == []


def test_every_command_may_be_given_to_an_operator_that_heeds_none() -> None:
    operator = Plain()
    operator.records_wait(0)
    operator.durable(1, 0)
    operator.rest(True, 0)
    operator.catch_up(True)
    operator.finish()
    operator.sources_ended()
    operator.close()
    assert (operator.unfinished(), operator.wakes_at(0)) == (0, MAX_TIME)


def test_an_operator_must_say_how_it_runs() -> None:
    with pytest.raises(TypeError, match=r"abstract method '?run"):
        Operator()  # type: ignore[abstract]


def _kinds(kind: type[Operator]) -> set[type[Operator]]:
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def test_every_operator_that_can_tell_what_it_does_is_watched() -> None:
    """A base class declares ``watched``: whoever forgets to say it is an operator whose hanging
    calls nobody sees."""
    assert issubclass(WindowCallbackOperator, Operator)
    telling = {kind for kind in _kinds(Operator) if hasattr(kind, "doing")}
    assert {CallbackOperator, WindowCallbackOperator} <= telling
    assert [kind for kind in telling if kind.watched is Operator.watched] == []
