from __future__ import annotations

import logging

import pytest

from millwheel.adapters.waits import Wait
from millwheel.connect.connectors.external import absence
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.errors import UnavailableError
from tests.fakes.memory_target import MemorySink, Table


def test_one_sentence_a_minute_tells_of_a_target_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = [100.0]
    away = absence.Absence(Wait("the store", lambda: clock[0]))
    monkeypatch.setitem(absence._absences, "the store", away)
    table = Table()
    sink = MemorySink(table, where="the store")
    writers = [sink.open(f"s-{number}", 1) for number in range(3)]
    batch = writers[0].prepare(SinkBatch(0, "1-0", [SinkRecord("k", "a", 0)]))
    table.trouble = [UnavailableError("no route")] * 300
    for _ in range(100):
        clock[0] += 1
        for writer in writers:
            with pytest.raises(UnavailableError):
                writer.publish(batch)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        (
            "the store does not take rows: no route. They wait, and the input with them; nothing is"
            " lost."
        ),
        (
            "the store does not take rows for 60 s: no route. They wait, and the input with them;"
            " nothing is lost."
        ),
    ]
    writers[0].publish(batch)
    assert caplog.records[-1].getMessage() == "the store takes rows again after 99 s"


def test_each_try_waits_longer_up_to_a_bound() -> None:
    waits: list[float] = []
    back_off = absence.BackOff(0.5, waits.append)
    for _ in range(5):
        back_off.wait()
        back_off.failed()
    back_off.worked()
    back_off.wait()
    assert waits == [0.1, 0.2, 0.4, 0.5]
