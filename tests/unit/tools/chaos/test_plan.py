"""The plan of faults follows from its seed."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from millwheel.tools.chaos.plan import Fault, Plan, Target

ALL = (Target.WORKERS, Target.MASTER, Target.INJECTOR)


def test_the_same_seed_gives_the_same_faults() -> None:
    one, again = (list(islice(Plan(ALL, 2.0, True, 7).faults(), 30)) for _ in range(2))
    assert one == again
    assert one != list(islice(Plan(ALL, 2.0, True, 8).faults(), 30))


def test_all_targets_have_their_turn_and_faults_come_as_often_as_asked() -> None:
    faults = list(islice(Plan(ALL, 2.0, False, 1).faults(), 300))
    assert Counter(planned.target for planned in faults) == dict.fromkeys(ALL, 100)
    assert {planned.fault for planned in faults} == {Fault.KILL}
    assert 1.8 < sum(planned.after_s for planned in faults) / 300 < 2.2


def test_pauses_are_for_processes_of_this_project_and_end() -> None:
    faults = list(islice(Plan((*ALL, Target.ZOOKEEPER), 1.0, True, 1).faults(), 400))
    paused = [planned for planned in faults if planned.fault is Fault.PAUSE]
    assert 50 < len(paused) < 200
    assert all(
        0 < planned.lasts_s <= 20 and planned.target is not Target.ZOOKEEPER for planned in paused
    )


def test_workers_alone_are_cut_off_and_joined_again() -> None:
    faults = list(islice(Plan(ALL, 1.0, True, 1, partitions=True).faults(), 600))
    cut = [planned for planned in faults if planned.fault is Fault.PARTITION]
    assert 40 < len(cut) < 100
    assert all(0 < planned.lasts_s <= 20 and planned.target is Target.WORKERS for planned in cut)
    of_workers = {planned.fault for planned in faults if planned.target is Target.WORKERS}
    assert of_workers == {Fault.KILL, Fault.PAUSE, Fault.PARTITION}


def test_a_host_that_is_lost_is_away_for_longer_than_it_takes_to_notice() -> None:
    faults = list(
        islice(Plan((Target.HOSTS, Target.MASTER), 1.0, True, 1, partitions=True).faults(), 100)
    )
    lost = [planned for planned in faults if planned.target is Target.HOSTS]
    assert {planned.fault for planned in lost} == {Fault.KILL}
    assert all(5 <= planned.lasts_s <= 10 for planned in lost)
