from __future__ import annotations

import pytest

from millwheel.adapters import waits
from millwheel.adapters.waits import Wait, wait_for, waiting


def test_a_wait_lasts_from_its_first_failed_try_and_has_the_reason_of_the_last() -> None:
    clock = [100.0]
    wait = Wait("the table sales", lambda: clock[0])
    assert wait.waiting() is None
    assert wait.noted("no route") == 0
    clock[0] += 12
    assert wait.noted("the disk is full") == 12
    told = wait.waiting()
    assert told is not None
    assert told.in_words() == "the table sales: the disk is full (for 12 s)"
    assert wait.over() == 12
    assert wait.over() is None
    assert wait.waiting() is None


def test_a_wait_that_nobody_notes_any_more_is_over() -> None:
    """Its shard has moved to another worker."""
    clock = [0.0]
    wait = Wait("the table sales", lambda: clock[0])
    wait.noted("no route")
    clock[0] += 121
    assert wait.waiting() is None
    assert wait.noted("no route") == 0


def test_what_waits_for_long_is_told_the_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    for name, since_s in (("b", 5.0), ("a", 0.0), ("c", 12.0)):
        wait = Wait(name, lambda: clock[0])
        clock[0] = since_s
        wait.noted("no answer")
        monkeypatch.setitem(waits._waits, name, wait)
    clock[0] = 16.0
    assert [each.what for each in waiting()] == ["a", "b"]


def test_all_who_name_it_share_a_wait() -> None:
    assert wait_for("Kafka at b:1") is wait_for("Kafka at b:1")
    wait_for("Kafka at b:1").noted("no answer")
    assert [each.why for each in waiting(least_s=0)] == ["no answer"]
