from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.metrics.text import text_of
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.core import metrics as c
from millwheel.core.metrics import Figure
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import SetupError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.ui.panels import Panels
from millwheel.tools.ui.readings import Rates, ShardReading, readings_in
from tests.unit.tools.ui.test_layout import TEXT


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


# readings.py


def test_shards_are_read_from_the_text_of_a_worker() -> None:
    labels = ("n", "n-0")
    figures = [
        Figure(c.RECORDS_IN, 7, labels), Figure(c.RECORDS_OUT, 3, labels), Figure(c.BUSY_SECONDS,
        0.5, labels),
        Figure(c.CREDIT_USED, 0.25, labels), Figure(c.CONGESTED, 1, labels), Figure(c.STATE_BYTES,
        99, labels),
        Figure(c.INBOX_RECORDS, 2, labels), Figure(c.LATE_RECORDS, 5, labels),
        Figure(c.STEP_SECONDS, 1.5),
    ]  # fmt: skip
    found = readings_in(text_of(figures, {"process": "worker-0"}).decode())
    assert found == {"n-0": ShardReading(7, 3, 0.5, 2, 0.25, 1, 99)}


def test_rates_are_of_the_same_shard_in_the_same_worker() -> None:
    rates = Rates()
    assert rates.take({"w0": {"n-0": ShardReading(100, 10, 1.0)}}, 5.0) == {}
    found = rates.take({"w0": {"n-0": ShardReading(300, 30, 1.5)}}, 7.0)["n-0"]
    assert (found.records_in, found.records_out, found.busy) == (100.0, 10.0, 0.25)
    # its new owner counts from 0
    assert rates.take({"w1": {"n-0": ShardReading(5, 0, 0.1)}}, 8.0) == {}
    assert rates.take({"w1": {"n-0": ShardReading(4, 0, 0.1)}}, 9.0)["n-0"].records_in == 0.0
