import sys

from bench.contest import role_of


def test_processes_are_told_by_the_module_they_run() -> None:
    assert role_of([sys.executable, "-m", "millwheel.workers", "--slot", "1"]) == "workers"
    assert role_of([sys.executable, "-m", "millwheel", "run", "p.yaml"]) == "driver"
    assert role_of([sys.executable, "-m", "millwheel.launch.launchers.warm_parent"]) == "warm_parent"
    assert role_of([sys.executable, "-c", "pass"]) == ""
    assert role_of(["java", "-m"]) == ""
