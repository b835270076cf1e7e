"""Checked by mypy and basedpyright in tests/slow/test_typing.py: what user code may leave out, and
what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
from typing_extensions import assert_type

from millwheel import Computation, ListState, MapState, ValueState


class Visit(msgspec.Struct):
    page: str
    count: int = 0


class Typed(Computation):
    seen = ValueState(int, default=0)
    last = ValueState(Visit)
    sums = ValueState(dict[str, float], default=dict)
    pages = ListState(str)
    counts = MapState(str, int)
    values = MapState(float)
    anything = ValueState()
    annotated: ValueState[int] = ValueState(int)

    def process_record(self, ctx: Any, record: Any) -> None:
        assert_type(self.seen.get(), int)
        assert_type(self.last.get(), Visit)
        assert_type(self.sums.get(), dict[str, float])
        assert_type(list(self.pages), list[str])
        assert_type(self.counts["a"], int)
        assert_type(self.counts.get("a"), int | None)
        assert_type(self.values["a"], float)
        assert_type(self.anything.get(), Any)
        self.seen.set(self.seen.get() + 1)
        self.seen.set("one")  # error
        self.last.get().pgae  # error
        self.pages.append(1)  # error
        self.counts[1] = 1  # error
        self.counts["a"] = "one"  # error
