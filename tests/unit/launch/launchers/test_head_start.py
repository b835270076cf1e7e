from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from millwheel.launch.early import children_for
from millwheel.launch.launchers.head_start import SECRETS_VARIABLE, head_start, is_sure, taken
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.tools.cli import main

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere children are executed"
)


def parents() -> list[psutil.Process]:
    found = psutil.Process().children()
    return [each for each in found if "millwheel.launch.launchers.warm_parent" in each.cmdline()]


@linux
@pytest.mark.parametrize(
    ("words", "sure"),
    [
        ("run p.yaml", True),
        ("run p.yaml --launcher processes --workers 3", True),
        ("run --launcher=processes p.yaml", True),
        ("run p.yaml --set launcher=spark", True),
        ("run p.yaml --launcher spark", False),
        ("run p.yaml --launcher=spark", False),
        ("run p.yaml --launcher", False),
        ("run p.yaml --launcher processes --launcher spark", False),
        ("run p.yaml --spark-master yarn", False),
        ("run p.yaml --spark-master=yarn", False),
        ("run p.yaml --secrets folder", False),
        ("run --help", False),
        ("validate p.yaml", False),
        ("", False),
    ],
)
def test_only_runs_on_plain_processes_have_a_head_start(
    words: str, sure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRETS_VARIABLE, raising=False)
    assert is_sure(words.split()) is sure
    monkeypatch.setenv(SECRETS_VARIABLE, "folder")
    assert not is_sure(words.split())


@linux
def test_the_run_takes_what_was_begun_before_its_command_line_was_read() -> None:
    with head_start(["run", "p.yaml"]):
        until_s = time.monotonic() + 10
        while not parents() and time.monotonic() < until_s:
            time.sleep(0.01)  # a child that was forked has our command line until it has its own
        (begun,) = parents()
        with children_for(RunSettings("p.yaml", launcher=LauncherKind.PROCESSES)) as children:
            assert children is not None
            assert parents() == [begun]
        assert not parents()
        assert taken() is None


@linux
def test_a_command_that_fails_before_it_runs_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["millwheel", "run", str(tmp_path / "p.yaml"), "--workers", "many"]
    )
    with pytest.raises(SystemExit):
        main()
    assert not parents()
