from __future__ import annotations

from millwheel.tools.ui.timeline import KEPT, Timeline


def kinds(line: Timeline) -> list[str]:
    return [event.kind for event in line.events]


def begun() -> Timeline:
    line = Timeline()
    line.workers({"w0-a": 0, "w1-b": 1}, 0)
    line.table({"n-0": "w0-a", "n-1": "w0-a", "n-2": "w1-b"}, (), 0)
    return line


def test_what_is_there_at_first_has_not_happened() -> None:
    assert begun().events == []


def test_a_worker_that_dies_is_told_with_its_shards_and_their_recovery() -> None:
    line = begun()
    line.workers({"w1-b": 1}, 1_000)
    assert line.events[-1].words == "worker 0 is gone (w0-a); 2 shards wait for another owner"
    line.table({"n-0": "w1-b", "n-1": "w0-a", "n-2": "w1-b"}, (), 1_300)
    assert kinds(line) == ["gone"]  # one of them still waits
    line.table({"n-0": "w1-b", "n-1": "w1-b", "n-2": "w1-b"}, (), 1_900)
    assert line.events[-1].words == "2 shards of w0-a went to w1-b within 0.9 s"
    line.workers({"w1-b": 1, "w0-c": 0}, 2_000)
    assert kinds(line) == ["gone", "recovered", "joined"]


def test_a_death_is_told_too_when_its_shards_were_heard_of_first() -> None:
    line = begun()
    line.table({"n-0": "w1-b", "n-1": "w1-b", "n-2": "w1-b"}, (), 1_000)
    line.workers({"w1-b": 1}, 1_400)
    assert kinds(line) == ["moved", "gone", "recovered"]
    assert line.events[1].words == "worker 0 is gone (w0-a); 2 shards wait for another owner"
    assert line.events[2].words == "2 shards of w0-a went to w1-b within 0.0 s"


def test_a_worker_that_leaves_after_planned_moves_leaves_nothing_to_recover() -> None:
    line = begun()
    everywhere = {"n-0": "w1-b", "n-1": "w1-b", "n-2": "w1-b"}
    line.table(everywhere, (), 1_000, planned=("n-0", "n-1"))
    line.workers({"w1-b": 1}, 1_400)
    assert [event.words for event in line.events][1:] == ["worker 0 is gone (w0-a)"]
    long_ago = begun()
    long_ago.table(everywhere, (), 1_000)
    long_ago.workers({"w1-b": 1}, 60_000)
    assert kinds(long_ago) == ["moved", "gone"]


def test_a_new_owner_that_dies_before_it_serves_is_no_recovery() -> None:
    line = begun()
    line.workers({"w1-b": 1}, 1_000)
    line.table({"n-0": "w9-x", "n-1": "w1-b", "n-2": "w1-b"}, (), 1_200)
    assert kinds(line) == ["gone"]


def test_shards_that_move_one_after_the_other_are_one_event() -> None:
    line = begun()
    line.table({"n-0": "w1-b", "n-1": "w0-a", "n-2": "w1-b"}, (), 1_000)
    line.table({"n-0": "w1-b", "n-1": "w1-b", "n-2": "w1-b"}, (), 3_000)
    assert [event.words for event in line.events] == ["2 shards moved from w0-a to w1-b"]
    line.table({"n-0": "w0-a", "n-1": "w1-b", "n-2": "w1-b"}, (), 3_500)
    line.table({"n-0": "w0-a", "n-1": "w0-a", "n-2": "w1-b"}, (), 60_000)
    assert [event.words for event in line.events[1:]] == ["1 shard moved from w1-b to w0-a"] * 2


def test_a_shard_that_was_split_away_is_not_waited_for() -> None:
    line = begun()
    line.workers({"w1-b": 1}, 1_000)
    line.table({"n-1": "w1-b", "n-2": "w1-b", "n-3": "w1-b"}, {"n-0"}, 1_200)
    assert kinds(line) == ["gone", "recovered"]


def test_only_the_newest_events_are_kept() -> None:
    line = begun()
    for number in range(KEPT + 5):
        line.add("run", str(number), number)
    assert (len(line.events), line.events[-1].words) == (KEPT, str(KEPT + 4))
