"""Dictionaries and ``uv:`` as they are written, and the counts of ``uv:`` in the real runtime:
those of plain sets, in rows and in columns."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.engine.workers.dictionaries.dictionary import DictionaryOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.errors import PipelineError
from millwheel.language.spec import load_pipeline
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.combinations import hit, written


def _load(folder: Path, text: str) -> object:
    spec = load_pipeline(written(folder, f"\ncomputations:\n  ids: {{{text}}}\n"))
    return spec.computations[0]


def test_a_dictionary_has_its_partitions_as_its_key(tmp_path: Path) -> None:
    found = load_pipeline(
        written(
            tmp_path,
            "\ncomputations:\n  ids: {input: hits, dictionary: {of: page, as: id}, output: out}\n",
        )
    ).computations[0]
    assert found.work == DictionarySpec("page", "id", 4096)
    assert found.inputs[0].key == KeySpec(KeyKind.FIELD, ("page",), partitions=4096)


def test_a_time_to_live_is_read(tmp_path: Path) -> None:
    found = load_pipeline(
        written(
            tmp_path,
            "\ncomputations:\n  ids: {input: hits, dictionary: {of: page, as: id, ttl: 1h}, output:"
            " out}\n",
        )
    ).computations[0]
    assert found.work == DictionarySpec("page", "id", 4096, ttl_us=3_600_000_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input: hits, dictionary: {of: page}, output: out", "as"),
        (
            "input: hits, dictionary: {of: page, as: 'a b'}, output: out",
            "cannot be the name of a field",
        ),
        ("input: hits, dictionary: {of: page, as: id, partitions: 0}, output: out", "partitions"),
        (
            "input: hits, dictionary: {of: page, as: id, ttl: 1us}, output: out",
            "must lie between 8us",
        ),
        (
            "input: {hits: {key: page}}, dictionary: {of: page, as: id}, output: out",
            "leave key out",
        ),
        ("input: hits, dictionary: {of: page, as: id}", "nothing could read the numbers"),
        (
            "input: hits, dictionary: {of: page, as: id}, output: out, productions: weak",
            "another number",
        ),
        (
            "input: hits, dictionary: {of: page, as: id}, output: out, filter: size > 1",
            "one of dictionary and filter",
        ),
    ],
)
def test_what_a_dictionary_cannot_have_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        _load(tmp_path, text)


PEOPLE = """
computations:
  people:
    input: {hits: {key: page}}
    uv: {of: user, every: 10us, per: 50us, partitions: 8}
    where: size > 0
    output: counts
"""
FIELDS = "    fields: {at: int, page: str, user: str, size: int}\n"


def _hits(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        hit(
            max(n + rng.randint(-60, 0), 0),
            f"user {rng.randrange(40)}",
            rng.choice("abc"),
            rng.randrange(4),
        )
        for n in range(count)
    ]


def _expected(
    rows: list[dict[str, Any]], every: int = 10, per: int = 50
) -> dict[tuple[str, int], int]:
    """Different users by page and end of the window, from the first step with a record to the end
    of the period."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    firsts: dict[tuple[str, int], int] = {}
    for row in rows:
        if row["size"] > 0:
            start = row["at"] - row["at"] % per
            end = row["at"] - row["at"] % every + every
            firsts[row["page"], start] = min(end, firsts.get((row["page"], start), end))
            for each in range(end, start + per + 1, every):
                seen[row["page"], each].add(row["user"])
    for (page, start), first in firsts.items():
        for end in range(first, start + per + 1, every):
            seen[page, end] |= seen.get((page, end - every), set()) if end > first else set()
    return {where: len(users) for where, users in seen.items()}


def _counts(rows: list[Any]) -> dict[tuple[str, int], int]:
    found = {(row["page"], row["window_end"]): row["visitors"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("declared", [False, True], ids=["rows", "columns"])
def test_every_step_has_the_exact_count_of_the_day_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    rows = _hits(900, 4)
    (tmp_path / "hits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = Path(written(tmp_path, PEOPLE))
    if declared:
        path.write_text(path.read_text().replace("    timestamp:", FIELDS + "    timestamp:"))
    taken = []
    right = DictionaryOperator._take_columns
    monkeypatch.setattr(
        DictionaryOperator,
        "_take_columns",
        lambda self, *given: (taken.append(1), right(self, *given))[1],
    )
    with PipelineHarness(str(path), run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        assert _counts(harness.read("counts")) == _expected(rows)
        grouped = [shard.operator for shard in harness._cluster.shards_of("people")]
        assert bool(taken) == declared
        assert all(isinstance(each, GroupedOperator) for each in grouped)
        assert any(getattr(each, "bundles_grouped", 0) for each in grouped) == declared


def test_a_time_to_live_of_the_whole_scope_changes_no_count(tmp_path: Path) -> None:
    rows = sorted(_hits(900, 7), key=lambda row: row["at"])
    forgetful = PEOPLE.replace("partitions: 8", "partitions: 8, ttl: 50us")
    with PipelineHarness(written(tmp_path, forgetful)) as harness:
        for start in range(0, len(rows), 20):
            harness.advance_watermark(rows[start]["at"], "hits")
            harness.push("hits", rows[start : start + 20])
        harness.finish()
        assert _counts(harness.read("counts")) == _expected(rows)
        known = [
            len(shard.operator._numbers._table)
            for shard in harness._cluster.shards_of("ids.people")
        ]
    assert known == [0] * len(known)


def test_counts_are_the_same_after_a_crash_at_any_moment(tmp_path: Path) -> None:
    assert assert_survives_crashes(written(tmp_path, PEOPLE), {"hits": _hits(12, 5)}, every=17) > 2


def test_the_approximate_form_is_near(tmp_path: Path) -> None:
    rows = _hits(300, 6)
    near = PEOPLE.replace("partitions: 8", "approximate: true")
    with PipelineHarness(written(tmp_path, near)) as harness:
        for row in sorted(rows, key=lambda row: row["at"]):
            harness.push("hits", row)
        harness.finish()
        found = _counts(harness.read("counts"))
    assert found == _expected(rows)  # so few are counted exactly by the sketch


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input: {hits: {key: page}}, uv: {of: user}, output: counts", "every"),
        ("input: {hits: {key: page}}, uv: {every: 1m}, output: counts", "of"),
        (
            "input: {hits: {key: page}}, uv: {of: 'a + b', every: 1m}, output: counts",
            "is not a field",
        ),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m, as: page}, output: counts",
            "name of the count",
        ),
        ("input: {hits: {key: page}}, uv: {of: user, every: 7m}, output: counts", "multiple of"),
        (
            (
                "input: {hits: {key: page}}, uv: {of: user, every: 1m, time_zone: Mars/Base},"
                " output: counts"
            ),
            "Mars",
        ),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m, ttl: 23h}, output: counts",
            "counted twice; write at",
        ),
        (
            (
                "input: {hits: {key: page}}, uv: {of: user, every: 1m, ttl: 25h, time_zone:"
                " Europe/Paris}, output: counts"
            ),
            "a day longer than `per`",
        ),
        (
            (
                "input: {hits: {key: page}}, uv: {of: user, every: 1m, ttl: 2d, approximate: true},"
                " output: c"
            ),
            "leave ttl",
        ),
        ("input: hits, uv: {of: user, every: 1m}, output: counts", "by the fields of one input"),
        ("input: {hits: {key: page}}, uv: {of: user, every: 1m}", "nothing could read the counts"),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m}, output: c, trigger: never",
            "not before; leave",
        ),
        (
            (
                "input: {hits: {key: page}}, uv: {of: user, every: 1m}, output: c,"
                " allowed_lateness: 1m"
            ),
            "raise max_delay",
        ),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m}, output: c, skew: scatter(4)",
            "by visitor",
        ),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m}, output: c, productions: weak",
            "needs strong ones",
        ),
        (
            "input: {hits: {key: page}}, uv: {of: user, every: 1m}, output: c, map: size",
            "its own window",
        ),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        load_pipeline(written(tmp_path, f"\ncomputations:\n  people: {{{text}}}\n"))
