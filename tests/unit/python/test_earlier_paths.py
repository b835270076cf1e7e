from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

from millwheel.connect.sinks.base import Sink

PUBLIC = (
    "sources.base",
    "sinks.base",
    "lookups.base",
    "connectors.external.target",
    "connectors.external.sink",
    "testing.pipeline_harness",
)


@pytest.mark.parametrize("path", PUBLIC)
def test_what_packages_of_connectors_import_is_the_module_of_today(path: str) -> None:
    sys.modules.pop(f"millwheel.{path}", None)
    with pytest.warns(DeprecationWarning, match=rf"millwheel\.{path} is millwheel\.\w+\.{path}$"):
        found = importlib.import_module(f"millwheel.{path}")
    assert found is sys.modules[found.__name__]
    assert found.__spec__ is not None
    assert found.__name__ == found.__spec__.name
    assert found.__name__.endswith(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_packed_under_an_earlier_path_is_read() -> None:
    assert pickle.loads(b"cmillwheel.sinks.base\nSink\n.") is Sink


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_never_was_is_not_there_and_the_sentence_has_its_name() -> None:
    for name in ("millwheel.sinks.nowhere", "millwheel.nowhere", "millwheel.launch.nowhere"):
        with pytest.raises(ModuleNotFoundError, match=name):
            importlib.import_module(name)


@pytest.mark.parametrize("service", ["injector", "master", "workers"])
def test_a_service_is_started_by_its_earlier_path(service: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"millwheel.{service}", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"python -m millwheel.{service} [OPTIONS]" in done.stdout


def test_nothing_of_them_is_loaded_before_it_is_asked_for() -> None:
    text = (
        "import sys, millwheel; print(*(n for n in sys.modules if"
        " n.startswith('millwheel.connect')))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", text], check=True, capture_output=True, text=True
        ).stdout
        == "\n"
    )
