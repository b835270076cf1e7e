"""What ``millwheel replay`` says about letters that are not tried again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from millwheel.engine.letters import Letter
from millwheel.tools.cli.change import letters as module
from millwheel.tools.cli.change.letters import left_out

RECORD = {
    "computation": "visits",
    "reason": "TypeError",
    "stream": "hits",
    "what": "record",
    "timestamp": 1,
}


def letters(*whats: str) -> list[Letter]:
    return [
        Letter("visits", "TypeError", what=what, id=f"{what}:{number}")
        for number, what in enumerate(whats)
    ]


def records(*names: str) -> list[Letter]:
    return [Letter(**RECORD, id=name) for name in names]


def test_letters_that_cannot_be_tried_again_are_counted_by_kind() -> None:
    found = [*records("a"), *letters("timer", "window", "timer", "production", "injection", "")]
    assert list(left_out(found, (), 1)) == [
        "6 cannot be tried again: 1 of an earlier version, 1 of injected records, 1 of results that"
        " were too large, 2 of timers, 1 of windows."
    ]


def test_letters_that_were_asked_for_before_and_those_over_the_limit_are_counted() -> None:
    assert list(left_out(records("a", "b", "c", "d"), {"a"}, 1)) == [
        "1 were asked for before.",
        "2 are over the limit.",
    ]


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    assert list(left_out(records("a", "b"), (), 2)) == []


def test_a_replay_is_one_object_for_other_programs(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    known: dict[str, Any] = {
        "chosen_root": Path,
        "_chosen": lambda *_: records("a", "b", "c"),
        "_orders": lambda *_: None,
        "asked_for": lambda _: {"a"},
        "ask": lambda *_: 2,
        "is_driven": lambda _: False,
    }
    for name, value in known.items():
        monkeypatch.setattr(module, name, value)
    module.replay("/root", "", "", None, Console(file=io.StringIO()), as_json=True)
    assert msgspec.json.decode(capfdbinary.readouterr().out) == {
        "root": "/root", "replayed": 2, "running": False, "left_out": ["1 were asked for before."]
    }  # fmt: skip
