import sys

from bench.contest import Outcome, role_of


def test_processes_are_told_by_the_module_they_run() -> None:
    assert role_of([sys.executable, "-m", "millwheel.engine.workers", "--slot", "1"]) == "workers"
    assert role_of([sys.executable, "-m", "millwheel", "run", "p.yaml"]) == "driver"
    assert (
        role_of([sys.executable, "-m", "millwheel.launch.launchers.warm_parent"]) == "warm_parent"
    )
    assert role_of([sys.executable, "-c", "pass"]) == ""
    assert role_of(["java", "-m"]) == ""


def test_cores_are_of_a_time_and_do_not_contain_the_start() -> None:
    looks = [(10.0, 2.0), (12.0, 4.0), (14.0, 5.0), (16.0, 9.0)]
    outcome = Outcome(0, None, 6.0, 9.0, 0.0, "", cpu_at=looks)
    assert outcome.cores(11.0, 15.0) == 0.5
    assert outcome.cores(13.0, 15.0) is None, "one look tells nothing"
