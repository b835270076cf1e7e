from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from millwheel.tools.chaos.fault_injector import FaultCount, Outcome
from millwheel.tools.chaos.plan import Fault, Target
from millwheel.tools.chaos.report import recovery_table, summary, times_of

KILLED = (Target.WORKERS, Fault.KILL)


def recovery(**seen: float) -> Any:
    none = dict.fromkeys(("detected_s", "reassigned_s", "first_output_s"))
    return SimpleNamespace(target=KILLED[0], fault=KILLED[1], **{**none, **seen})


def outcome(*recoveries: Any) -> Outcome:
    return Outcome(9.0, {KILLED: FaultCount(3, [0.25])}, cast("Any", recoveries))


def test_times_are_those_of_the_faults_that_were_seen_through() -> None:
    found = times_of(
        outcome(recovery(detected_s=0.5), recovery(detected_s=1.5, first_output_s=2.0)), KILLED
    )
    assert found == {
        "detected": [0.5, 1.5],
        "replaced": [0.25],
        "reassigned": [],
        "first_output": [2.0],
    }
    assert times_of(outcome(), (Target.MASTER, Fault.KILL))["replaced"] == []


def test_the_table_has_a_row_for_each_kind_and_a_dash_for_what_was_not_seen() -> None:
    console = Console(width=150, file=io.StringIO())
    console.print(recovery_table(outcome(recovery(detected_s=0.5))))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "kill workers" in text
    assert "0.50 / 0.50" in text
    assert " - " in text


def test_the_summary_is_plain_and_says_how_many_were_lost_and_made() -> None:
    difference = cast("Any", SimpleNamespace(stream="out", rows=10, lost=1, surplus=2))
    found = summary(Outcome(1.0, {}), outcome(recovery(detected_s=0.5)), [difference])
    [fault] = found["faults"]
    assert (fault["target"], fault["fault"], fault["count"]) == ("workers", "kill", 3)
    assert fault["detected"] == {"seen": 1, "p50": 0.5, "p99": 0.5}
    assert fault["reassigned"] == {"seen": 0}
    assert found["sinks"] == [
        {"stream": "out", "rows": 10, "missing": 1, "extra": 2, "arrival": []}
    ]
