from __future__ import annotations

import os
import subprocess
import sys

import pytest

from millwheel.launch.memory import KEPT, worker_environment

_ASK = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"


def test_a_worker_keeps_memory_and_has_the_rest_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMETHING", "of the user")
    for name in KEPT:
        monkeypatch.delenv(name, raising=False)
    found = worker_environment()
    assert found["SOMETHING"] == "of the user"
    assert {name: found[name] for name in KEPT} == KEPT


def test_settings_of_the_user_win() -> None:
    assert worker_environment({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"})["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"


def test_arrow_understands_its_setting() -> None:
    env = worker_environment({**os.environ, "ARROW_DEFAULT_MEMORY_POOL": KEPT["ARROW_DEFAULT_MEMORY_POOL"]})
    told = subprocess.run([sys.executable, "-c", _ASK], env=env, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "system"
