"""``then`` and ``having`` in rows and in columns, with windows and without, also where results are
taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.testing import PipelineHarness

HEAD = """
pipeline: p
streams:
  e:
    source: injection
    timestamp: {field: at, unit: us}
    fields: %s
computations:
  c:
    input: {e: {key: k}}
    aggregate: {n: count, total: {sum: v}}
    then: {mean: total / n}
    having: mean > 2 and k != 'z'
    output: o
"""
FIELDS = ["{}", "{at: int, k: str, v: int}"]


def records(*values: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"at": 10 * at, "k": k, "v": v} for at, (k, v) in enumerate(values)]


def harness(tmp_path: Path, text: str, **more: Any) -> PipelineHarness:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    return PipelineHarness(file, **more)


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("more", ["", "    skew: scatter(3)\n", "    trigger: default\n"])
def test_results_of_windows_are_shown(tmp_path: Path, fields: str, more: str) -> None:
    text = HEAD % fields + "    window: {tumbling: 1s}\n" + more
    run = harness(tmp_path, text)
    run.push("e", records(("a", 1), ("a", 2), ("b", 3), ("b", 4), ("z", 9)))
    run.finish()
    [row] = run.read("o")
    assert row == {
        "k": "b", "window_start": 0, "window_end": 1_000_000, "n": 2, "total": 7, "mean": 3.5
    }  # fmt: skip


@pytest.mark.parametrize("fields", FIELDS)
def test_a_group_that_does_not_satisfy_it_any_more_is_taken_back(
    tmp_path: Path, fields: str
) -> None:
    run = harness(tmp_path, HEAD % fields)
    seen = []
    for each in records(("a", 5), ("a", 1), ("a", -5), ("a", 20)):
        run.push("e", [each])
        seen.append([(r["mean"], RETRACTION_FIELD in r) for r in run.take("o")])
    assert seen == [
        [(5.0, False)],
        [(5.0, True), (3.0, False)],
        [(3.0, True)],
        [(5.25, False)],
    ]


def test_what_cannot_be_made_is_one_letter_and_is_not_taken_back(tmp_path: Path) -> None:
    text = HEAD % "{}"
    run = harness(tmp_path, text.replace("total / n", "1 / total").replace("mean > 2 and ", ""))
    for each in records(("a", 5), ("a", -5), ("a", 1)):
        run.push("e", [each])
    assert [(r["total"], RETRACTION_FIELD in r) for r in run.read("o")] == [
        (5, False),
        (5, True),
        (1, False),
    ]
    [letter] = run.read("dead_letters")
    assert "then or having failed on a result" in letter["reason"]
