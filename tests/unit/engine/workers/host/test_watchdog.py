"""Looks at calls of user code from beside the loop."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import millwheel.core.expressions.fields as fields_module
import millwheel.launch.launchers.warm_parent as warm_parent_module
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.engine.workers.bundle.hangs import Hangs, LeasedShard
from millwheel.engine.workers.host import watchdog
from millwheel.engine.workers.host.watchdog import HangCounter, Standstill, Tidying
from millwheel.errors import UnavailableError
from tests.unit.engine.workers.bundle.test_hangs import Running
from tests.unit.engine.workers.bundle.test_lone_records import ENTRY, death

PLACE = LeasedShard("work", "work-0", 3)


def test_a_call_is_found_when_it_was_the_same_at_so_many_looks_in_a_row() -> None:
    watch, operator = HangCounter(3), Running(1, 2, 2, 2, 3, 3, 3, 3)
    found = [watch.look([(PLACE, operator)]) is not None for _ in range(8)]
    assert found == [False] * 7 + [True]


def test_an_operator_that_rests_between_looks_is_none_that_hangs() -> None:
    watch, operator = HangCounter(2), Running(1)
    for _ in range(5):
        operator.running = True
        assert watch.look([(PLACE, operator)]) is None
        operator.running = False
        assert watch.look([(PLACE, operator)]) is None


def frames(*files: str) -> Any:
    """A stack, from the outermost file to the innermost one."""
    frame = None
    for file in files:
        frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=file), f_back=frame)
    return frame


def test_user_code_that_is_no_callback_is_found_by_its_frame_once() -> None:
    ours, library = watchdog.__file__, os.__file__
    stuck, other = frames(ours, "/home/ann/keys.py"), frames(ours, "/home/ann/keys.py")
    look = Standstill(2).look
    inside = SimpleNamespace(f_code=SimpleNamespace(co_filename=library), f_back=stuck)
    assert [look(stuck), look(other), look(stuck), look(inside), look(stuck), look(stuck)] == [
        *([False] * 4),
        True,
        False,
    ]
    warm_parent, fields = warm_parent_module.__file__, fields_module.__file__
    for files in ((ours, library), (warm_parent, ours), (warm_parent, ours, fields)):
        stack = frames(*files)
        assert not any(look(stack) for _ in range(5))
    stuck = frames(warm_parent, ours, "/home/ann/keys.py", fields)
    assert any(look(stuck) for _ in range(5))
    assert not any(look(None) for _ in range(5))


class _Away(HangNotes):
    away = False

    def remove(self, node: str, name: str) -> None:
        if self.away:
            raise UnavailableError("the root does not answer")
        super().remove(node, name)


def test_notes_about_deaths_go_once_they_have_served_also_where_calls_may_take_any_time(
    tmp_path: Path,
) -> None:
    notes = _Away(open_space(str(tmp_path)))
    hangs = Hangs(notes, after=1)
    for _ in range(2):
        hangs.write(death())
    hangs.read_notes("work", ENTRY)  # type: ignore[arg-type]
    avoided = hangs.watch(None, "work", ENTRY)  # type: ignore[arg-type]
    avoided.ran_alone(avoided.lone)
    notes.away = True
    Tidying(hangs).tidy()
    assert len(notes.read("work")) == 2
    notes.away = False
    Tidying(hangs).tidy()
    assert not notes.read("work")
