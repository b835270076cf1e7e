from pathlib import Path

from bench.dense import results, table
from bench.figures import Figure


def failed(contestant: str, variant: str) -> Figure:
    return Figure(
        part="E", contestant=contestant, variant=variant, run=0, campaign="s", at="", settings={},
        machine={},
        error="did not end within its time",
    )  # fmt: skip


def figure(contestant: str, variant: str, us: float, windows: float = 1.0) -> Figure:
    return Figure(
        part="E", contestant=contestant, variant=variant, run=0, campaign="s", at="", settings={},
        machine={},
        metrics={"us_per_record": us, "windows_per_record": windows}, correct=True,
    )  # fmt: skip


def test_native_windows_are_compared_with_key_windows_of_the_same_size() -> None:
    found = [
        figure("millwheel", "10s/1s native", 20.0), figure("millwheel", "10s/1s key", 5.0, 0.5),
        figure("millwheel", "1h/100ms key", 7.0, 1.6), figure("bytewax", "10s/1s native", 40.0),
        failed("spark", "10s/1s native"),
    ]  # fmt: skip
    head, _, coarse, dense = table(found).splitlines()
    assert head.endswith(" | native, times as long as by key: millwheel | bytewax | spark |")
    assert coarse == "| 10s/1s | 4 | 8 | no result |"
    assert dense == "| 1h/100ms | not run | not run | not run |"


def test_without_key_windows_there_is_nothing_to_compare_with() -> None:
    assert table([figure("bytewax", "10s/1s native", 40.0)]) == ""


def test_results_of_peers_are_counted_and_added_up_without_what_engines_keep_for_themselves(
    tmp_path: Path,
) -> None:
    (tmp_path / "part-0.json").write_text('{"sum": 3}\n{"sum": 4}\n')
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text("v1")
    (tmp_path / ".part-0.json.crc").write_text("crc")
    assert results(tmp_path) == (2, 7)
