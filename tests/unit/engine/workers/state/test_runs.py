"""Runs: small ones become larger ones, and nothing of them is lost."""

from __future__ import annotations

import pytest

from millwheel.engine.workers.state import runs
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.engine.workers.state.runs import Runs
from millwheel.errors import InvariantError
from tests.fakes.plain_storage import SimStore

ROW = 4


class Bench:
    def __init__(self) -> None:
        self.store = SimStore({})
        self.reopen()

    def reopen(self) -> None:
        self.overlay = Overlay(self.store)
        self.runs = Runs(self.overlay, lambda number: b"r%04d" % number, ROW)
        for store_key, data in self.store.scan(b"r"):
            self.runs.restore(store_key, int(store_key[1:]), len(data))

    def write(self, *numbers: int) -> None:
        self.runs.write(b"".join(number.to_bytes(ROW, "big") for number in numbers))
        self.store.apply(*self.overlay.take())

    def numbers(self) -> list[int]:
        together = b"".join(self.store.data.values())
        return sorted(
            int.from_bytes(together[at : at + ROW], "big") for at in range(0, len(together), ROW)
        )


@pytest.mark.parametrize("reopen", [False, True])
def test_eight_of_a_size_become_one_and_all_rows_are_there(reopen: bool) -> None:
    bench = Bench()
    for number in range(1000):
        bench.write(number)
        if reopen and number % 7 == 0:
            bench.reopen()
    assert bench.numbers() == list(range(1000))
    assert len(bench.store.data) <= 4 * 8


def test_a_large_run_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_LARGE", 10)
    bench = Bench()
    for start in range(0, 1000, 10):
        bench.write(*range(start, start + 10))
    assert len(bench.store.data) == 100
    assert {len(run) for run in bench.store.data.values()} == {10 * ROW}


def test_all_of_them_are_deleted_with_the_next_commit() -> None:
    bench = Bench()
    for number in range(20):
        bench.write(number)
    bench.runs.delete()
    assert bench.store.data
    bench.store.apply(*bench.overlay.take())
    assert not bench.store.data


def test_a_run_that_is_missing_is_told() -> None:
    bench = Bench()
    for number in range(7):
        bench.write(number)
    bench.store.data.pop(b"r0003")
    with pytest.raises(InvariantError, match="some are not in the store"):
        bench.write(7)
