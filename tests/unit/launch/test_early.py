from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from millwheel.adapters.secret_values import FOLDER_VARIABLE
from millwheel.launch.early import children_for, loading
from millwheel.launch.settings import LauncherKind, RunSettings


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
    code = "import sys, millwheel.launch.early; "
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
