from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError
from tests.fakes.plain_storage import SimStore

LONG = [b"s" + b"\0" * 8 + b"k", b"s" + b"\0" * 8 + b"kk", b"s" + b"\0" * 7 + b"\1k"]
"""Two of one key, as entries of state are, and one of another key."""
KEYS = st.sampled_from([b"a", b"ab", b"abc", b"b", b"ba", *LONG])
VALUES = st.sampled_from([b"", b"1", b"2"])


class OverlayAgainstADict(RuleBasedStateMachine):
    """What a bundle sees is what a dict would show; a savepoint is a copy of it."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SimStore({b"ab": b"old", b"b": b"old", LONG[0]: b"old"})
        self.overlay = Overlay(self.store)
        self.model = dict(self.store.data)
        self.saved: list[tuple[int, dict[bytes, bytes]]] = []

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.overlay.put(key, value)
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.overlay.delete(key)
        self.model.pop(key, None)

    @rule(changes=st.dictionaries(KEYS, st.none() | VALUES))
    def update(self, changes: dict[bytes, bytes | None]) -> None:
        self.overlay.update(changes)
        for key, value in changes.items():
            self.model.pop(key, None)
            self.model.update({} if value is None else {key: value})

    @rule()
    def save(self) -> None:
        self.saved.append((self.overlay.savepoint(), dict(self.model)))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        if self.saved:
            index = data.draw(st.integers(0, len(self.saved) - 1))
            mark, model = self.saved[index]
            del self.saved[index + 1 :]
            self.overlay.undo_to(mark)
            self.model = dict(model)

    @rule()
    def commit(self) -> None:
        self.store.apply(*self.overlay.take())
        assert self.store.data == self.model
        assert not self.overlay
        self.saved.clear()

    @invariant()
    def reads_agree(self) -> None:
        keys = [b"a", b"ab", b"abc", b"b", b"ba", b"zz", *LONG]
        assert [self.overlay.get(key) for key in keys] == [self.model.get(key) for key in keys]
        assert self.overlay.get_many(keys) == [self.model.get(key) for key in keys]
        for prefix in (b"", b"a", b"ab", b"zz", b"s", LONG[0][:9], LONG[0], LONG[2]):
            want = sorted(
                (key, value) for key, value in self.model.items() if key.startswith(prefix)
            )
            assert list(self.overlay.scan(prefix)) == want


OverlayAgainstADict.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None
)
TestAnOverlayReadsAsADict = OverlayAgainstADict.TestCase


def test_nothing_reaches_the_store_before_it_is_taken() -> None:
    store = SimStore({b"k": b"1"})
    overlay = Overlay(store)
    overlay.put(b"k", b"2")
    overlay.delete(b"x")
    assert store.data == {b"k": b"1"}
    assert overlay.take() == ([(b"k", b"2")], [b"x"])
    assert overlay.get(b"k") == b"1"


def test_an_overlay_is_true_when_it_would_change_something() -> None:
    overlay = Overlay(SimStore({}))
    assert not overlay
    mark = overlay.savepoint()
    overlay.delete(b"x")
    assert overlay
    overlay.undo_to(mark)
    assert not overlay


def test_what_was_written_before_a_commit_is_not_taken_back_in_silence() -> None:
    overlay = Overlay(SimStore({}))
    overlay.put(b"before", b"1")
    point = overlay.savepoint()
    overlay.put(b"a", b"1")
    overlay.take()
    with pytest.raises(InvariantError, match="not known any more"):
        overlay.undo_to(point)
