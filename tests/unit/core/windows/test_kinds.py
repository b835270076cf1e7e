"""A kind of windows is one row: file, schema and Python follow from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.windows import kinds
from millwheel.core.windows.contract import Effects, RejectedRecord, rejected
from millwheel.core.windows.kinds import (
    WINDOW_KINDS,
    OptionForm,
    WindowKind,
    WindowOption,
    window_tree,
)
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Global,
    OfInput,
    Sessions,
    Sliding,
    Tumbling,
    Window,
    WindowFunction,
)
from millwheel.errors import RecordError
from millwheel.language.schema import words
from millwheel.language.spec import check_pipeline
from millwheel.language.spec.parts import windows as reader

FILE = """pipeline: p
streams: {{hits: {{source: injection, timestamp: ts}}}}
computations:
  c: {{input: hits, window: {window}, aggregate: {{n: count}}, output: out}}
"""
EXAMPLES = [
    (Tumbling("1m"), {"tumbling": "1m"}),
    (
        Tumbling("1d", "2h", "Europe/Paris", empty=True),
        {"tumbling": "1d", "offset": "2h", "time_zone": "Europe/Paris", "emit": "empty"},
    ),
    (Sliding("1m", "10s"), {"sliding": "1m", "every": "10s"}),
    (
        Sliding("1m", "10s", "3s", changes=True),
        {"sliding": "1m", "every": "10s", "offset": "3s", "emit": "changes"},
    ),
    (Sessions("30m"), {"session": "30m"}),
    (Global(), "global"),
    (Count(7), {"count": 7}),
    (OfInput(), {"of": "input"}),
    (OfInput("opened", "closed"), {"of": "input", "start": "opened", "end": "closed"}),
    (Cumulative("1h", "1m"), {"cumulative": "1h", "every": "1m"}),
    (
        Cumulative("1d", "1h", "2h", "Europe/Paris", changes=True),
        {
            "cumulative": "1d",
            "every": "1h",
            "offset": "2h",
            "time_zone": "Europe/Paris",
            "emit": "changes",
        },
    ),
]


def _read(tree: Any, folder: Path) -> WindowFunction:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.format(window=json.dumps(tree)), encoding="utf-8")
    windowed = check_pipeline(file, {}, {})[0].computations[0].windowed
    assert windowed is not None
    return window_from_spec(windowed.window)


@pytest.mark.parametrize(("window", "tree"), EXAMPLES)
def test_a_window_is_the_same_after_it_was_written_to_a_file_and_read(
    tmp_path: Path, window: WindowFunction, tree: Any
) -> None:
    assert window_tree(window) == tree
    assert _read(tree, tmp_path) == window


def test_the_examples_have_every_kind_and_every_option() -> None:
    written = [tree for _, tree in EXAMPLES if isinstance(tree, dict)]
    for kind in WINDOW_KINDS.values():
        mine = [tree for tree in written if kind.word in tree]
        words = {option.word for option in kind.options} | ({kind.word} if kind.behind else set())
        assert words == {word for tree in mine for word in tree}


def test_windows_of_the_users_own_have_no_word() -> None:
    assert window_tree(Custom(lambda timestamp: [])) is None


@dataclass(frozen=True)
class Halves:
    """Windows of a kind that there is not."""

    size: int
    every: int
    merging = False

    def assign(self, timestamp: int) -> Sequence[Window]:
        return [Window(timestamp, timestamp + self.size // 2)]


def test_a_new_row_is_read_described_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size = WindowOption("halves", "size", OptionForm.DURATION, 1, required=True)
    kind = WindowKind(
        "halves", Halves, size, (WindowOption("every", "every", OptionForm.DURATION, 1),)
    )
    rows = MappingProxyType({**WINDOW_KINDS, "halves": kind})
    monkeypatch.setattr(kinds, "_ROWS", tuple(rows.values()))
    monkeypatch.setattr("millwheel.core.machines.specs.WINDOW_KINDS", rows)
    monkeypatch.setattr(reader, "KINDS", {**reader.KINDS, "halves": reader.part_of(kind)})
    assert window_tree(Halves(4_000_000, 2_000_000)) == {"halves": "4s", "every": "2s"}
    assert _read({"halves": "4s", "every": "2s"}, tmp_path) == Halves(4_000_000, 2_000_000)
    assert words.part(reader.KINDS["halves"])["required"] == ["halves"]


# contract.py


def test_a_rejected_record_says_why_and_which_aggregate_refused_it() -> None:
    error = RecordError("sum needs a number")
    error.aggregate = "bytes"
    assert rejected("k", {"v": 1}, 5, error) == RejectedRecord(
        "k", {"v": 1}, 5, "sum needs a number", "bytes"
    )
    assert rejected("k", 1, 5, RecordError("no day")).aggregate == ""


def test_effects_of_two_calls_are_apart() -> None:
    Effects().panes.append(None)  # type: ignore[arg-type]
    assert Effects().panes == []
