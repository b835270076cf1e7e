"""The generator of advertisement events."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_PATH = Path(__file__).parents[3] / "examples" / "ads" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ads_generate", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def behind(found: list[dict[str, Any]]) -> list[int]:
    """By how many ms each record is behind the newest before it."""
    newest, late = 0, []
    for row in found:
        late.append(newest - row["ts"])
        newest = max(newest, row["ts"])
    return late


def test_the_same_arguments_give_the_same_bytes(generate: ModuleType, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        generate.main(
            [
                "--records",
                "500",
                "--late",
                "0.1",
                "--duplicates",
                "0.1",
                "--out",
                str(tmp_path / name),
            ]
        )
    generate.main(["--records", "500", "--seed", "7", "--out", str(tmp_path / "c.jsonl")])
    a, b, c = ((tmp_path / name).read_bytes() for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    assert a == b != c


def test_records_have_the_documented_shape(generate: ModuleType, tmp_path: Path) -> None:
    [path] = generate.write(generate.Load(1_000), tmp_path / "events.jsonl")
    found = rows(path)
    assert {name: type(value) for name, value in found[0].items()} == {
        "event_id": str, "ad_id": int, "client_id": int, "uid": int, "type": str, "cost": float,
        "ts": int,
    }  # fmt: skip
    assert all(row["client_id"] == row["ad_id"] % 500 for row in found)
    assert {row["type"] for row in found} == {"impression", "click"}
    assert 0.05 < sum(row["type"] == "click" for row in found) / 1_000 < 0.15
    assert Counter(row["ad_id"] for row in found).most_common(1)[0][0] == 0


def test_without_late_records_all_disorder_is_within_its_bound(
    generate: ModuleType, tmp_path: Path
) -> None:
    [path] = generate.write(generate.Load(5_000, disorder_ms=2_000), tmp_path / "events.jsonl")
    late = behind(rows(path))
    assert 0 < max(late) <= 2_000


def test_late_records_are_more_than_ten_seconds_behind_their_own_file(
    generate: ModuleType, tmp_path: Path
) -> None:
    load = generate.Load(20_000, files=2, late=0.01)
    for path in generate.write(load, tmp_path):
        late = [delay for delay in behind(rows(path)) if delay > load.disorder_ms]
        assert 50 < len(late) < 150
        assert min(late) > 10_000


def test_a_duplicate_is_an_exact_copy_shortly_after_its_original(
    generate: ModuleType, tmp_path: Path
) -> None:
    [path] = generate.write(generate.Load(10_000, duplicates=0.05), tmp_path / "events.jsonl")
    lines = path.read_text().splitlines()
    twice = [line for line, times in Counter(lines).items() if times == 2]
    assert len(lines) - 10_000 == len(twice)
    assert 350 < len(twice) < 650
    assert len({json.loads(line)["event_id"] for line in lines}) == 10_000


def test_several_files_share_the_records(generate: ModuleType, tmp_path: Path) -> None:
    paths = generate.write(generate.Load(1_001, files=3), tmp_path / "events")
    assert [path.name for path in paths] == [
        "events-000.jsonl",
        "events-001.jsonl",
        "events-002.jsonl",
    ]
    assert [len(rows(path)) for path in paths] == [334, 334, 333]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--records", "0"], "write a whole number from 1 up"),
        (["--disorder", "soon"], "write for example 5s"),
        (["--late", "2"], "write a number from 0 to 1"),
        (["--seed", "-1"], "write a whole number from 0 up"),
    ],
)
def test_arguments_that_cannot_work_are_refused(
    generate: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    with pytest.raises(SystemExit):
        generate.main([*arguments, "--out", str(tmp_path / "x.jsonl")])
    assert words in capsys.readouterr().err
