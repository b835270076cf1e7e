"""The plan of faults follows from its seed."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from millwheel.tools.chaos.plan import Fault, Plan, Target

ALL = (Target.WORKERS, Target.MASTER, Target.INJECTOR)


def test_the_same_seed_gives_the_same_faults() -> None:
    one, again = (list(islice(Plan(ALL, 2.0, True, 7).blows(), 30)) for _ in range(2))
    assert one == again
    assert one != list(islice(Plan(ALL, 2.0, True, 8).blows(), 30))


def test_all_targets_have_their_turn_and_faults_come_as_often_as_asked() -> None:
    blows = list(islice(Plan(ALL, 2.0, False, 1).blows(), 300))
    assert Counter(blow.target for blow in blows) == dict.fromkeys(ALL, 100)
    assert {blow.fault for blow in blows} == {Fault.KILL}
    assert 1.8 < sum(blow.after_s for blow in blows) / 300 < 2.2


def test_pauses_are_for_processes_of_this_project_and_end() -> None:
    blows = list(islice(Plan((*ALL, Target.ZOOKEEPER), 1.0, True, 1).blows(), 400))
    paused = [blow for blow in blows if blow.fault is Fault.PAUSE]
    assert 50 < len(paused) < 200
    assert all(0 < blow.lasts_s <= 20 and blow.target is not Target.ZOOKEEPER for blow in paused)


def test_workers_alone_are_cut_off_and_joined_again() -> None:
    blows = list(islice(Plan(ALL, 1.0, True, 1, partitions=True).blows(), 600))
    cut = [blow for blow in blows if blow.fault is Fault.PARTITION]
    assert 40 < len(cut) < 100
    assert all(0 < blow.lasts_s <= 20 and blow.target is Target.WORKERS for blow in cut)
    of_workers = {blow.fault for blow in blows if blow.target is Target.WORKERS}
    assert of_workers == {Fault.KILL, Fault.PAUSE, Fault.PARTITION}


def test_a_host_that_is_lost_is_away_for_longer_than_it_takes_to_notice() -> None:
    blows = list(
        islice(Plan((Target.HOSTS, Target.MASTER), 1.0, True, 1, partitions=True).blows(), 100)
    )
    lost = [blow for blow in blows if blow.target is Target.HOSTS]
    assert {blow.fault for blow in lost} == {Fault.KILL}
    assert all(5 <= blow.lasts_s <= 10 for blow in lost)
