from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MAX_TIME

KEYS = st.sampled_from(["a", "b", ("c", 1)])
TAGS = st.sampled_from(["", "t"])
TIMES = st.integers(-3, 6)


class TimersAgainstADict(RuleBasedStateMachine):
    """The queue beside a dict; savepoints are copies of the dict."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TimerQueue(Domain.EVENT)
        self.model: dict[Any, int] = {}
        self.touched: set[Any] = set()
        self.saved: list[tuple[int, dict[Any, int]]] = []

    @rule(key=KEYS, tag=TAGS, at=TIMES)
    def set_it(self, key: Any, tag: str, at: int) -> None:
        self.queue.set(key, tag, at)
        self.model[key, tag] = at
        self.touched.add((key, tag))

    @rule(key=KEYS, tag=TAGS)
    def cancel(self, key: Any, tag: str) -> None:
        there = (key, tag) in self.model
        assert self.queue.cancel(key, tag) is there
        if there:
            del self.model[key, tag]
            self.touched.add((key, tag))

    @rule(clock_us=TIMES)
    def fire(self, clock_us: int) -> None:
        due = self.queue.pop_due(clock_us)
        first = min(self.model.values(), default=MAX_TIME)
        if due is None:
            assert first >= clock_us
            return
        assert due.at == first < clock_us
        assert self.model.pop((due.key, due.tag)) == due.at
        self.touched.add((due.key, due.tag))

    @rule()
    def save(self) -> None:
        self.saved.append((self.queue.savepoint(), dict(self.model)))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        if not self.saved:
            return
        index = data.draw(st.integers(0, len(self.saved) - 1))
        mark, model = self.saved[index]
        del self.saved[index + 1 :]
        self.queue.undo_to(mark)
        self.model = dict(model)

    @rule()
    def commit(self) -> None:
        changes = self.queue.take_changes()
        assert all(self.model.get(index) == at for index, at in changes.items())
        assert set(changes) <= self.touched
        self.touched.clear()
        self.saved.clear()

    @invariant()
    def same(self) -> None:
        assert {(key, tag): at for key, tag, at in self.queue.items()} == self.model
        assert len(self.queue) == len(self.model)
        assert self.queue.earliest == min(self.model.values(), default=MAX_TIME)
        first = self.queue.first()
        assert (first is None) is (not self.model)
        assert all(self.queue.get(*index) == at for index, at in self.model.items())
        if first is not None:
            assert first.at == self.queue.earliest

    @rule(key=KEYS)
    def ask_for_the_first_of_a_key(self, key: Any) -> None:
        mine = [at for (owner, tag), at in self.model.items() if owner == key and tag]
        assert self.queue.first_of(key, bool) == min(mine, default=MAX_TIME)


TimersAgainstADict.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
TestTimersAreADictInOrderOfTime = TimersAgainstADict.TestCase


def test_a_timer_fires_only_once_its_time_has_passed() -> None:
    queue = TimerQueue(Domain.EVENT)
    queue.set("k", "t", 10)
    assert queue.pop_due(10) is None
    assert queue.pop_due(11) == Due("k", "t", 10, Domain.EVENT)
    assert queue.pop_due(MAX_TIME) is None


def test_a_timer_that_is_set_again_moves() -> None:
    queue = TimerQueue(Domain.PROCESSING)
    queue.set("k", "t", 10)
    queue.set("k", "t", 20)
    assert queue.pop_due(15) is None
    assert queue.pop_due(21) == Due("k", "t", 20, Domain.PROCESSING)
    assert len(queue) == 0


def test_timers_fire_in_order_of_time_then_of_setting() -> None:
    queue = TimerQueue(Domain.EVENT)
    for key, at in (("c", 5), ("a", 7), ("b", 5)):
        queue.set(key, "", at)
    fired = [due.key for _ in range(3) if (due := queue.pop_due(100))]
    assert fired == ["c", "b", "a"]


def test_timers_of_one_time_fire_in_the_order_of_their_tags_not_of_their_setting() -> None:
    fired = []
    for tags in ("bac", "cba"):
        queue = TimerQueue(Domain.EVENT)
        for tag in tags:
            queue.set("k", tag, 5)
        fired.append([due.tag for _ in tags if (due := queue.pop_due(6))])
    assert fired == [["a", "b", "c"]] * 2


def test_changes_tell_what_a_commit_must_write() -> None:
    queue = TimerQueue(Domain.EVENT)
    queue.set("a", "", 1)
    queue.set("b", "", 2)
    assert queue.take_changes() == {("a", ""): 1, ("b", ""): 2}
    queue.cancel("a", "")
    queue.set("b", "", 3)
    queue.set("c", "", 4)
    queue.cancel("c", "")
    assert queue.take_changes() == {("a", ""): None, ("b", ""): 3, ("c", ""): None}
    assert queue.take_changes() == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("scpu"),
            st.sampled_from("ab"),
            st.sampled_from("xyz"),
            st.integers(0, 5),
        )
    )
)
def test_the_timers_of_a_key_are_counted_from_the_first_question_on(
    steps: list[tuple[str, str, str, int]],
) -> None:
    queue = TimerQueue(Domain.EVENT)
    index = 0
    for number, (step, key, tag, at) in enumerate(steps):
        if step == "s":
            queue.set(key, tag, at)
        elif step == "c":
            queue.cancel(key, tag)
        elif step == "p":
            queue.pop_due(at)
        else:
            queue.undo_to(index)
        if number == 2:
            index = queue.savepoint()
        if number >= 1:
            for each in "ab":
                assert queue.waiting(each, lambda tag: True) == sum(
                    1 for mine, _, _ in queue.items() if mine == each
                )
