import json
from pathlib import Path

import msgspec
import polars as pl
import pytest

from bench.scaling_input import ADS_PER_FILE, GrowingInput, make


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> GrowingInput:
    made = GrowingInput(tmp_path_factory.mktemp("growing"), 20_000)
    for number in range(2):
        make(made, number)
    return made


def rows_of(path: Path) -> list[dict[str, object]]:
    return pl.read_parquet(path).to_dicts()


def write(folder: Path, rows: list[dict[str, object]]) -> Path:
    folder.mkdir()
    (folder / "out.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return folder


def test_the_records_of_an_ad_are_all_in_one_file(load: GrowingInput) -> None:
    for number in range(2):
        ads = {json.loads(line)["ad_id"] for line in load.lines(number).read_bytes().splitlines()}
        assert min(ads) >= number * ADS_PER_FILE
        assert max(ads) < (number + 1) * ADS_PER_FILE


def test_the_first_files_are_an_input_of_their_own(load: GrowingInput) -> None:
    assert [path.name for path in load.first(1).iterdir()] == ["events-000.jsonl"]
    assert len(list(load.first(2).iterdir())) == 2


def test_the_windows_are_those_of_the_lines(load: GrowingInput) -> None:
    clicks = spend = 0.0
    for line in load.lines(0).read_bytes().splitlines():
        event = json.loads(line)
        clicks += event["type"] == "click"
        spend += event["cost"]
    found = pl.read_parquet(load.windows(0))
    assert found["clicks"].sum() == clicks
    assert found["impressions"].sum() == 20_000 - clicks
    assert found["spend"].sum() == pytest.approx(spend)


def test_rows_of_windows_are_right_once_and_only_once(load: GrowingInput, tmp_path: Path) -> None:
    rows = rows_of(load.windows(0))
    assert load.wrong_windows(1, write(tmp_path / "right", rows)) == 0
    assert load.wrong_windows(1, write(tmp_path / "missing", rows[1:])) == 1
    assert load.wrong_windows(1, write(tmp_path / "twice", [*rows, rows[0]])) == 1
    assert (
        load.wrong_windows(
            1, write(tmp_path / "different", [{**rows[0], "clicks": 9_999}, *rows[1:]])
        )
        == 1
    )
    assert load.wrong_windows(2, write(tmp_path / "half", rows)) == len(rows_of(load.windows(1)))
    (tmp_path / "nothing").mkdir()
    assert load.wrong_windows(1, tmp_path / "nothing") == len(rows)


def test_outliers_are_right_once_and_only_once(load: GrowingInput, tmp_path: Path) -> None:
    told = msgspec.json.decode(load.outliers(0).read_bytes(), type=dict[str, float])
    rows: list[dict[str, object]] = [{"event_id": name, "z": z} for name, z in told.items()]
    assert rows
    assert load.wrong_outliers(1, write(tmp_path / "right", rows)) == 0
    assert load.wrong_outliers(1, write(tmp_path / "missing", rows[1:])) == 1
    assert load.wrong_outliers(1, write(tmp_path / "twice", [*rows, rows[0]])) == 1
    assert (
        load.wrong_outliers(1, write(tmp_path / "different", [{**rows[0], "z": 0.0}, *rows[1:]]))
        == 1
    )
