from __future__ import annotations

import os
import subprocess
import sys

import pytest

from millwheel.adapters.processes.libraries import SETTINGS, no_idle_threads, worker_environment

_ASK = (
    "import polars, pyarrow; print(pyarrow.default_memory_pool().backend_name,"
    " polars.thread_pool_size())"
)


def test_a_worker_has_the_settings_and_the_rest_of_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOMETHING", "of the user")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    found = worker_environment()
    assert found["SOMETHING"] == "of the user"
    assert {name: found[name] for name in SETTINGS} == SETTINGS


def test_settings_of_the_user_win() -> None:
    assert (
        worker_environment({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"})["ARROW_DEFAULT_MEMORY_POOL"]
        == "jemalloc"
    )


def test_arrow_and_polars_understand_their_settings() -> None:
    env = worker_environment({**os.environ, **SETTINGS})
    told = subprocess.run(
        [sys.executable, "-c", _ASK], env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["system", "1"]


def test_a_command_has_no_idle_threads_unless_its_environment_asks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    no_idle_threads()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts the threads in /proc")
def test_numpy_starts_no_thread_in_a_command() -> None:
    ask = (
        "from millwheel.adapters.processes.libraries import no_idle_threads; no_idle_threads();"
        " import numpy, os; "
    )
    ask += "print(len(os.listdir('/proc/self/task')))"
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    told = subprocess.run(
        [sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["1"]
