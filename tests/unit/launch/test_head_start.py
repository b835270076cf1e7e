from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from millwheel.adapters.secret_values import FOLDER_VARIABLE
from millwheel.launch.head_start import (
    SECRETS_VARIABLE,
    children_for,
    head_start,
    is_sure,
    loading,
    taken,
)
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere children are executed")
def test_plain_processes_have_a_warm_parent_and_spark_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with children_for(RunSettings("p.yaml", launcher=LauncherKind.SPARK)) as children:
        assert children is None
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    with children_for(
        RunSettings("p.yaml", launcher=LauncherKind.PROCESSES, secrets="/secrets")
    ) as children:
        assert children is not None
        assert os.environ[FOLDER_VARIABLE] == "/secrets"


def test_it_loads_next_to_nothing_itself() -> None:
    code = "import sys, millwheel.launch.head_start; "
    code += "print([name for name in ('grpc', 'numpy', 'polars', 'kazoo') if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_nobody_looks_for_garbage_while_modules_are_loaded_and_everybody_does_afterwards() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()
