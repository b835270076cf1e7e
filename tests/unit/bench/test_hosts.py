"""How many spares come to be, without the namespaces themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.hosts import Hosts, environment


@pytest.mark.parametrize(
    ("hosts", "workers", "spares"),
    [(2, 2, 2), (2, 4, 4), (3, 4, 2), (4, 8, 3), (6, 6, 2), (1, 3, 1)],
)
def test_auto_is_as_many_as_the_hosts_ask_for(hosts: int, workers: int, spares: int) -> None:
    made = Hosts(hosts, 1.0, Path())
    assert made.spares(workers, "auto") == spares
    assert made.spares(workers, "5") == 5
    assert made.step(), "no host is away"


def test_the_environment_of_a_run_has_its_variables_and_the_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ELSE", "kept")
    found = environment({"MORE": "1"}, [Path("/a"), Path("/b")])
    assert (found["MORE"], found["ELSE"], found["PYTHONPATH"]) == ("1", "kept", "/a:/b")
