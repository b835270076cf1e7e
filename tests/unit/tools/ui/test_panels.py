from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.replay_orders import ReplayOrders
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import SetupError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui.panels import Panels
from tests.unit.tools.ui.test_drawing import TEXT


def letter(number: int, **more: Any) -> dict[str, Any]:
    made = {
        "computation": "count", "reason": f"ValueError: {number}", "error": "ValueError",
        "location": "c.py:3 in f",
        "stream": "words", "key": "a", "value": {"n": number, "password": "x"}, "timestamp": 5,
        "what": "record",
        "attempts": 3,
    }  # fmt: skip
    return {**made, **more}


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    return load_pipeline(tmp_path / "p.yaml")


@pytest.fixture
def panels(tmp_path: Path) -> Panels:
    folder = tmp_path / "root" / "dead_letters"
    folder.mkdir(parents=True)
    lines = [letter(n) for n in range(7)] + [letter(9, what="timer", location="c.py:8 in g")]
    (folder / "part-0.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    root = tmp_path / "root"
    return Panels(str(root), root, ReplayOrders(open_space(str(root))))


def test_letters_are_grouped_with_the_newest_of_each(panels: Panels, spec: PipelineSpec) -> None:
    groups = panels.letters(spec).groups
    assert [(each.kind, each.count, each.left, each.replayed) for each in groups] == [
        ("ValueError at c.py:3 in f", 7, 7, 0), ("ValueError at c.py:8 in g", 1, 0, 0),
    ]  # fmt: skip
    assert [each.reason for each in groups[0].letters] == [
        f"ValueError: {n}" for n in (6, 5, 4, 3, 2)
    ]
    assert groups[0].letters[0].value == {"n": 6, "password": "***"}
    assert not groups[1].letters[0].again


def test_one_letter_or_all_of_a_group_are_replayed_once(panels: Panels, spec: PipelineSpec) -> None:
    kind = "ValueError at c.py:3 in f"
    later = "when the pipeline is run on this root again."
    assert (
        panels.replay(spec, "count", kind, "part-0.jsonl:2")
        == f"1 dead letter is tried again, {later}"
    )
    group = panels.letters(spec).groups[0]
    assert (group.left, group.replayed) == (6, 1)
    assert panels.replay(spec, "count", kind, "") == f"6 dead letters are tried again, {later}"
    assert panels.replay(spec, "count", kind, "") == "All of them were asked for before."
    assert (
        panels.replay(spec, "count", "ValueError at c.py:8 in g", "")
        == "These dead letters cannot be tried again."
    )
    with pytest.raises(SetupError, match="no such dead letters"):
        panels.replay(spec, "count", "no such kind", "")


def test_letters_that_go_elsewhere_are_said(
    panels: Panels, spec: PipelineSpec, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(dedent(TEXT) + "  dead_letters: {stdout: {}}\n")
    assert "cannot be read" in panels.letters(load_pipeline(tmp_path / "p.yaml")).problem


def test_settings_have_limits_and_no_secrets(
    panels: Panels, spec: PipelineSpec, tmp_path: Path
) -> None:
    found = {each.name: each.value for each in panels.settings(spec)}
    assert found["pipeline"] == "drawn"
    assert found["root"] == str(tmp_path / "root")
    assert found["longest call"] == "60 s"
    assert panels.savepoints() == []
