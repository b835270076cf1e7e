"""Values of state are a callback's own, and each other's strangers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel import Computation, InjectionSource, MapState, Pipeline, ValueState
from millwheel.testing import PipelineHarness

SHARED: list[int] = []


class Floats(msgspec.Struct):
    total: float = 0
    parts: dict[str, float] = {}


class Changes(Computation):
    """Does to its state what ``do`` says, and shows all of it."""

    one = ValueState(list, default=lambda: SHARED)
    two = ValueState(list, default=list)
    many = MapState(str, list)
    floats = ValueState(Floats, default=Floats)
    brief = ValueState(list, default=list, ttl="1d")

    def __init__(self) -> None:
        self.held: Any = None

    def process_record(self, ctx: Any, record: Any) -> None:
        for do in record.value["do"]:
            getattr(self, do)()
        floats = self.floats.get()
        shown = [self.one.get(), self.two.get(), sorted(self.many.items()), self.brief.get()]
        ctx.produce(
            "out", {"n": record.value["n"], "shown": repr([shown, floats.total, floats.parts])}
        )

    def append(self) -> None:
        self.one.get().append(1)
        self.brief.get().append(1)

    def hold(self) -> None:
        self.held = self.one.get()

    def change_held(self) -> None:
        self.held.append("held")

    def set_both(self) -> None:
        value = [5]
        self.one.set(value)
        self.two.set(value)
        self.many["a"] = value
        self.many["b"] = value
        self.brief.set(value)
        value.append("afterwards")

    def append_to_a(self) -> None:
        self.many["a"].append(1)

    def set_and_append(self) -> None:
        self.one.set([1])
        self.one.get().append(2)

    def put_tuple(self) -> None:
        self.one.get().append((1,))

    def whole_number(self) -> None:
        floats = self.floats.get()
        floats.total = 3
        floats.parts["x"] = 1
        self.floats.get().parts["y"] = 2
        floats.parts["z"] = 3

    def wrong(self) -> None:
        self.floats.get().total = "text"  # type: ignore[assignment]

    def right(self) -> None:
        self.floats.get().total = 1.0


def shown(*steps: str, together: bool, crash: bool) -> tuple[list[Any], list[int]]:
    p = Pipeline("changes")
    p.read("s", InjectionSource(), timestamp="t").key_by("k").process(
        Changes, output="out", name="c", max_attempts=1
    )
    records = [
        {"t": i, "k": step[0], "n": i, "do": step[2:].split()} for i, step in enumerate(steps)
    ]
    with PipelineHarness(p, shards=1) as h:
        for some in [records] if together else [[each] for each in records]:
            h.push("s", some)
            if crash:
                h.crash()
        rows = sorted(h.read("out"), key=lambda row: row["n"])
        return [row["shown"] for row in rows], sorted(
            letter["value"]["n"] for letter in h.read("dead_letters")
        )


@pytest.mark.parametrize(
    "steps",
    [
        ("a append", "b append", "a append", "c"),
        ("a set_both", "a append_to_a", "a append", "b", "a"),
        ("a whole_number", "a", "a whole_number append", "a right", "a"),
        ("a wrong", "a right", "a wrong whole_number", "a"),
        ("a append wrong", "a append", "a append right wrong"),
        ("a set_both", "a append", "a", "a set_and_append", "a append", "a"),
        ("a set_both", "a put_tuple", "a", "a set_and_append put_tuple", "a append"),
    ],
)
def test_state_is_the_same_whatever_is_cached(steps: tuple[str, ...]) -> None:
    found = shown(*steps, together=False, crash=True)
    assert found == shown(*steps, together=False, crash=False)
    assert found == shown(*steps, together=True, crash=False)
    assert not SHARED


def test_a_change_of_what_a_call_has_left_behind_is_nobodys() -> None:
    steps = ("a append", "a hold", "b change_held", "a", "a append", "b change_held", "a")
    calm, _ = shown(*steps, together=False, crash=False)
    assert calm[3] == calm[0]
    assert "held" not in "".join(calm)


def test_a_value_of_another_type_is_the_dead_letter_of_the_record_that_left_it() -> None:
    for together in (True, False):
        _, letters = shown("a", "a wrong", "a", "a right", together=together, crash=False)
        assert letters == [1]
