"""What would count the versions of a group is told, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.language.spec import check_pipeline
from tests.unit.language.spec.parts.test_steps import computation

REPEATED = {"window": "global", "trigger": "{repeat: {after_count: 1}}"}


@pytest.mark.parametrize("window", ["{tumbling: 1m}", "{session: 1m}", "{count: 3}"])
def test_windows_behind_a_change_log_are_refused(problems: Any, window: str) -> None:
    text = computation(aggregate="{n: count}")
    behind = f"  d: {{input: {{out: {{key: n}}}}, window: {window}, aggregate: {{m: count}}, "
    [found] = problems(text + behind + "output: q}\n")
    assert "yaml:9: computations.d.window: its input comes from the change log 'c'" in found
    assert "chance decides which versions it has, and when; leave out window, or" in found


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({}, "write accumulation: retracting there, or leave it out"),
        (REPEATED, "write accumulation: retracting there"),
    ],
)
def test_a_consumer_that_counts_each_version_is_told(
    tmp_path: Path, fields: dict[str, str], cure: str
) -> None:
    text = computation(aggregate="{n: count}", accumulation="accumulating", **fields)
    file = tmp_path / "p.yaml"
    behind = "  d: {input: {out: {key: n}}, window: global, aggregate: {m: count}, output: q}\n"
    for mode, told in (("accumulating", 1), ("retracting", 0)):
        file.write_text(text.replace("accumulating", mode) + behind)
        _, warnings = check_pipeline(file, {}, {})
        found = [each for each in warnings if "counts each version that 'c' emits" in each]
        assert len(found) == told
        assert all(each.endswith(cure) for each in found), found


def test_slices_behind_a_change_log_are_refused(problems: Any) -> None:
    text = computation(aggregate="{n: count}")
    slices = "slices: {every: 1m, keep: 1d}, aggregate: {m: count}"
    [found] = problems(text + f"  d: {{input: {{out: {{key: n}}}}, {slices}}}\n")
    assert "leave out slices, or give 'c' a window" in found


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("{files: {path: out}}", 1),
        ("{files: {path: out, mode: upsert}}", 0),
        ("{files: {path: out, mode: changelog}}", 1),
        ("{stdout: {}}", 0),
    ],
)
def test_sinks_that_keep_all_versions_are_told_of(tmp_path: Path, sink: str, told: int) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(computation(aggregate="{n: count}") + f"sinks: {{out: {sink}}}\n")
    _, warnings = check_pipeline(file, {}, {})
    assert (
        sum("each version of the change log 'c' becomes a row here" in w for w in warnings) == told
    )
