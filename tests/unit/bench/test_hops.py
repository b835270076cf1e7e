import json
from pathlib import Path

import pytest

from bench.figures import Figure
from bench.hops import table
from bench.inputs import Input, Order, file_of_ad, level, make
from millwheel.connect.sources.files.patterns import dealt
from millwheel.core.model.keys import key_hash


def figure(run: int, variant: str, rate: float, cpu_us: float) -> Figure:
    return Figure(
        part="G", contestant="millwheel", variant=variant, run=run, campaign="s", at="",
        settings={}, machine={},
        metrics={"records_per_s": rate, "cpu_us_per_record": cpu_us}, correct=True,
    )  # fmt: skip


def test_the_price_of_a_hop_is_compared_within_each_round() -> None:
    found = [
        figure(0, "columns, every record stays", 1_000.0, 2.0), figure(0,
        "columns, every record crosses", 900.0, 2.5),
        figure(1, "columns, every record stays", 2_000.0, 2.0), figure(1,
        "columns, every record crosses", 1e3, 4.0),
    ]  # fmt: skip
    assert table(found).splitlines()[2:] == ["| columns | 0.7 (0.5 to 0.9) | 1.25 (0.5 to 2) |"]
    assert table(found[:1]) == ""


@pytest.mark.parametrize("order", [Order.LOCAL, Order.ACROSS])
def test_the_reader_of_a_file_owns_all_of_its_ads_or_none(order: Order, tmp_path: Path) -> None:
    made = Input(tmp_path, 2_000, 2, order)
    make(made)
    paths = {path.name: path for path in made.of("jsonl").iterdir()}
    listed = dealt({name: path.stat().st_size for name, path in paths.items()})
    halves = [{key_hash(ad) >> 63 for ad in ads_of(paths[name])} for name in listed]
    assert halves == ([{0}, {1}] if order is Order.LOCAL else [{1}, {0}])


def ads_of(path: Path) -> list[int]:
    return [json.loads(line)["ad_id"] for line in path.read_bytes().splitlines()]


def test_leveled_files_are_equally_large_and_say_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(b'{"ad_id": 1}\n{"ad_id": 2}\n{"ad_id": 3}\n')
    paths[1].write_bytes(b'{"ad_id": 4}\n{"ad_id": 5}\n')
    level(paths)
    assert paths[0].stat().st_size == paths[1].stat().st_size == 39
    assert [ads_of(path) for path in paths] == [[1, 2, 3], [4, 5]]


def test_other_than_two_files_have_no_halves() -> None:
    with pytest.raises(ValueError, match="3 files"):
        file_of_ad(1, 3, Order.LOCAL)
