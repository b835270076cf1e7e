"""What the command line of the chaos test may say."""

from __future__ import annotations

from collections import Counter

import pytest

from millwheel.errors import SetupError
from millwheel.launch.settings import LauncherKind
from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.results import Difference
from millwheel.tools.cli.chaos import exit_code, parse_seconds, parse_targets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "workers,masters",
            "--kill masters: there is no such target; there are workers, hosts, executors",
        ),
        ("", "--kill names nothing"),
        ("executors", "only --launcher spark has executors"),
    ],
)
def test_targets_that_are_none_are_named(text: str, expected: str) -> None:
    with pytest.raises(SetupError, match=expected):
        parse_targets(text, LauncherKind.PROCESSES)


@pytest.mark.parametrize(
    ("unequal", "code"),
    [("", 0), ("free", 4), ("bound", 1), ("free bound", 1)],
    ids=["none", "free", "bound", "both"],
)
def test_a_difference_that_arrival_may_make_has_an_exit_code_of_its_own(
    unequal: str, code: int
) -> None:
    free = {"free": ("c: hits may have several files",), "bound": ()}
    found = [
        Difference(name, 9, Counter("r" * (name in unequal.split())), Counter()) for name in free
    ]
    assert exit_code(found, free) == code


def test_a_partition_is_a_fault_of_workers() -> None:
    with pytest.raises(SetupError, match="--partition cuts workers off"):
        parse_targets("master", LauncherKind.PROCESSES, partition=True)
    assert parse_targets("workers", LauncherKind.PROCESSES, partition=True) == (Target.WORKERS,)


def test_hosts_can_be_killed_where_there_are_some() -> None:
    with pytest.raises(SetupError, match="--kill hosts: give --hosts N"):
        parse_targets("hosts", LauncherKind.PROCESSES)
    with pytest.raises(SetupError, match="use --launcher processes"):
        parse_targets("hosts", LauncherKind.SPARK, hosts=2)
    assert parse_targets("hosts", LauncherKind.PROCESSES, hosts=2) == (Target.HOSTS,)


def test_targets_and_durations_are_read() -> None:
    assert parse_targets("workers, executors,workers", LauncherKind.SPARK) == (
        Target.WORKERS,
        Target.EXECUTORS,
    )
    assert parse_seconds("1500ms", "--every") == 1.5
    with pytest.raises(SetupError, match="--every soon"):
        parse_seconds("soon", "--every")
