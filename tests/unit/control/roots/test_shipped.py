"""A pipeline that was shipped, as the processes of the run load it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.roots.shipped import load_shipped
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.errors import SetupError
from tests.unit.control.roots.test_shipping import ship


def test_a_worker_elsewhere_loads_what_the_driver_saw(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(folder / "mine.yaml", {"input": "/in"}, folder / "root")
    monkeypatch.delenv("LIMIT_OF_TEST")
    spec = load_shipped(str(folder / "root"))
    assert spec.computations[0].called.options == {"limit": 41}
    assert [sink.stream for sink in spec.sinks] == ["out", DEAD_LETTERS]
    assert spec.sinks[1].options["path"] == str(folder / "root" / DEAD_LETTERS)


def test_a_root_that_nobody_shipped_to_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="holds no pipeline"):
        load_shipped(str(tmp_path))
