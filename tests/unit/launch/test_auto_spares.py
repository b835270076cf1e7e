from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.master.tables.spares import exposed, seated
from millwheel.launch.auto_spares import AutoSpares, SpareStep, needed, superfluous


class Run:
    """A run whose spares come and go as it is told."""

    def __init__(self, seats: list[str], most: int | None = None) -> None:
        self.hosts = dict(enumerate(seats))
        self.seats, self.spares = len(seats), 0
        self.auto, self.now_s, self.said = AutoSpares(most), 0.0, list[str]()

    def add(self, host: str) -> None:
        self.hosts[max(self.hosts) + 1] = host
        self.spares += 1

    def serving(self) -> set[str]:
        """By the rule of the master."""
        return set(seated({f"{n:02}": host for n, host in self.hosts.items()}, {}, self.seats, ()))  # type: ignore[misc]

    def look(self, seconds: float = 100.0) -> SpareStep:
        """What is decided after everything has been as it is for this long."""
        idle = [slot for slot in self.hosts if f"{slot:02}" not in self.serving()]
        self.auto.look(self.hosts, self.spares, idle, self.now_s)
        self.now_s += seconds
        step = self.auto.look(self.hosts, self.spares, idle, self.now_s)
        self.said += [step.line] if step.line else []
        if step.fewer is not None:
            del self.hosts[step.fewer]
            self.spares -= 1
        return step

    def exposed(self) -> int:
        hosts = {f"{n:02}": host for n, host in self.hosts.items()}
        return exposed(hosts, self.serving(), hosts.keys() - self.serving())  # type: ignore[arg-type]


def test_where_each_spare_has_a_host_they_are_the_most_workers_on_any_host_plus_one() -> None:
    for each in (1, 2, 3):
        run = Run([f"h{host}" for host in range(6) for _ in range(each)])
        run.add("h0")
        while run.look(3.0).more:
            run.add(f"h{run.spares}")
        assert run.spares == each + 1
        assert run.exposed() == 0


def test_on_one_host_there_is_one_and_a_line_says_why_once() -> None:
    run = Run(["h"] * 4)
    run.add("h")
    for _ in range(3):
        assert not run.look().more
    assert run.said == [
        "All workers are on the host h, and no spare outlives it: --spares auto is 1 here, for the"
        " loss of a process"
    ]


def test_hosts_must_be_steady_before_anything_is_decided() -> None:
    run = Run(["h1", "h2"])
    run.add("h1")
    assert run.look(1.0) == SpareStep()
    assert run.look(1.5) == SpareStep(more=True)


def test_when_there_is_no_room_or_no_use_it_says_which_host_may_not_die() -> None:
    run = Run(["h1", "h2"], most=3)
    run.add("h1")
    assert run.look().line.startswith(
        "The host h1 may not die: it has 2 workers, and there are 1 spares"
    )
    assert "room for 3 workers" in run.said[0]
    run = Run(["h1", "h2"])
    for _ in range(3):
        run.add("h1")
    assert "they start where others are already" in run.look().line


def test_a_spare_that_does_not_join_is_told_once() -> None:
    auto = AutoSpares()
    assert auto.awaited({4}, 0.0) == SpareStep()
    assert auto.awaited({4}, 59.0) == SpareStep()
    assert "the slots 4" in auto.awaited({4}, 60.0).line
    assert auto.awaited({4}, 70.0) == SpareStep()
    auto.look({0: "h"}, 1, [], 71.0)
    assert auto.awaited({4}, 80.0) == SpareStep()


def test_a_spare_that_nobody_needs_any_more_goes_after_a_minute() -> None:
    run = Run(["h1", "h2", "h3"])
    for host in ("h1", "h2", "h3"):
        run.add(host)
    assert run.look(50.0).fewer is None
    step = run.look(11.0)
    assert step.fewer is not None
    assert run.exposed() == 0
    assert needed(Counter(run.hosts.values())) == run.spares
    assert superfluous(run.hosts, run.spares, list(run.hosts)) is None


HOSTS = st.sampled_from(["h1", "h2", "h3", "h4"])


@given(seats=st.lists(HOSTS, min_size=1, max_size=8), choice=st.data())
def test_with_spares_on_the_emptiest_hosts_any_host_may_die_in_the_end_and_then_nothing_changes(
    seats: list[str], choice: st.DataObject
) -> None:
    run = Run(seats)
    run.add(choice.draw(HOSTS))
    there = sorted(set(run.hosts.values()))
    for _ in range(30):
        step = run.look()
        if step.more:
            counts = Counter(run.hosts.values())
            run.add(min(there, key=lambda host: (counts[host], host)))
        elif step.fewer is None:
            break
    else:
        raise AssertionError("it does not end")
    if len(set(run.hosts.values())) > 1:
        assert run.exposed() <= 0
        assert run.spares <= run.seats + 1
    for _ in range(3):
        assert (run.look().more, run.look().fewer) == (False, None)
    assert len(run.said) <= 2


@given(seats=st.lists(HOSTS, min_size=1, max_size=6), spares=st.lists(HOSTS, max_size=6))
def test_the_rule_says_what_the_master_finds(seats: list[str], spares: list[str]) -> None:
    run = Run(seats)
    for host in spares:
        run.add(host)
    counts = Counter(run.hosts.values())
    if len(counts) > 1:
        assert (run.spares >= needed(counts)) <= (run.exposed() <= 0)
