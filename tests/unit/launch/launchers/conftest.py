from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.adapters.processes.libraries import SETTINGS
from millwheel.launch.launchers.processes import ProcessLauncher
from millwheel.launch.launchers.warm_children import Children
from tests.unit.launch.helpers import template, write_worker


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return write_worker(tmp_path)


@pytest.fixture
def launcher(tmp_path: Path, module: str) -> Iterator[ProcessLauncher]:
    with Children() as children:
        made = ProcessLauncher(template(tmp_path, module), children.start)
        yield made
        made.stop(10.0)


@pytest.fixture
def threads(tmp_path: Path) -> None:
    begins = (
        "import threading, time; threading.Thread(target=time.sleep, args=(600,),"
        " daemon=True).start()"
    )
    (tmp_path / "sitecustomize.py").write_text(begins)
