import re
from pathlib import Path

import pytest

from bench.curves import curves
from bench.figures import Figure, append, latest_campaign, read
from bench.latency import Line, quantiles_ms, right
from bench.pace import quiet_rounds
from bench.stats import quantile, spread
from bench.strength import bars, table


def figure(
    part: str = "A", campaign: str = "s", contestant: str = "millwheel", rate: float = 1.0
) -> Figure:
    return Figure(
        part=part, contestant=contestant, variant="jsonl", run=0, campaign=campaign,
        at="2026-01-01T00:00:00+00:00",
        settings={"records": 5}, machine={"cores": 2}, metrics={"records_per_s": rate},
        correct=True,
    )  # fmt: skip


def test_figures_are_read_as_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "figures.jsonl"
    for rate in (1.0, 2.0):
        append(path, figure(rate=rate))
    assert list(read(path)) == [figure(rate=1.0), figure(rate=2.0)]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    append(path, figure())
    path.write_bytes(path.read_bytes() + b'{"part":"A","cont')
    assert list(read(path)) == [figure()]


def test_no_file_has_no_figures(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none.jsonl")) == []


def test_the_latest_campaign_of_a_part_is_that_of_its_last_figure() -> None:
    first, other, last = figure(campaign="1"), figure(part="B", campaign="3"), figure(campaign="2")
    assert latest_campaign([first, last, other], "A") == [last]
    assert latest_campaign([first], "C") == []


# stats.py


def test_the_median_of_some_runs_lies_between_least_and_greatest() -> None:
    found = spread([4.0, 1.0, 2.0])
    assert (found.runs, found.median, found.least, found.greatest) == (3, 2.0, 1.0, 4.0)
    assert found.relative == pytest.approx(0.75)


def test_no_runs_have_no_median() -> None:
    with pytest.raises(ValueError, match="no runs"):
        spread([])


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_a_quantile_is_a_value_that_was_measured(share: float, value: int) -> None:
    assert quantile(list(range(1, 101)), share) == value


# curves.py


def test_ten_times_the_value_is_one_step_up_wherever_it_begins() -> None:
    drawn = curves("title", "workers", {"a": [(10, 1.0), (100, 10.0), (1_000, 100.0)]})
    [shape] = re.findall(r'polyline points="([^"]*)"', drawn)
    points = [tuple(map(float, pair.split(","))) for pair in shape.split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)  # drawn to a tenth
    assert y0 > y1


def test_labels_of_lines_that_end_together_do_not_cover_each_other() -> None:
    drawn = curves("title", "workers", {"a": [(1, 1.0), (10, 5.0)], "b": [(1, 2.0), (10, 5.0)]})
    labels = [float(y) for y in re.findall(r'y="([\d.]+)" fill="#', drawn)]
    assert len(labels) == 2
    assert labels[1] - labels[0] >= 15


def test_text_is_escaped_and_nothing_cannot_be_drawn() -> None:
    assert "<b>" not in curves("<b>", "<b>", {"<b>": [(1, 0.0), (2, 0.0)]})
    with pytest.raises(ValueError, match="nothing to draw"):
        curves("title", "workers", {})


# latency.py


def test_every_record_must_be_seen_once_and_the_totals_add_up() -> None:
    seen: list[Line] = [(1.0, [(0, 1, 0.9), (1, 1, 0.9)]), (2.0, [(0, 2, 1.9)])]
    assert right(seen, 3)
    assert not right(seen, 4)
    assert not right([*seen, seen[-1]], 4)
    assert not right([*seen, (3.0, [(0, 2, 2.9)])], 4)


def test_the_first_seconds_are_left_out() -> None:
    seen: list[Line] = [(5.0, [(0, 1, 0.0)]), (10.001, [(0, 2, 10.0)]), (11.003, [(0, 3, 11.0)])]
    found = quantiles_ms(seen)
    assert found["p50_ms"] == pytest.approx(1.0, abs=1e-3)
    assert found["max_ms"] == pytest.approx(3.0, abs=1e-3)


# pace.py


def test_a_round_counts_if_others_were_quiet_in_each_of_its_runs() -> None:
    greedy, balanced = [0.1, 0.1, 0.9, 0.3], [0.2, 0.5, 0.1, 0.3]
    assert quiet_rounds([greedy, balanced], 0.3) == [0, 3]
    assert quiet_rounds([greedy, balanced], 0.05) == []


# strength.py


def round_figure(run: int, variant: str, p50: float, p95: float, correct: bool = True) -> Figure:
    return Figure(
        part="C", contestant="millwheel", variant=variant, run=run, campaign="s", at="",
        settings={}, machine={},
        metrics={"p50_ms": p50, "p95_ms": p95}, correct=correct,
    )  # fmt: skip


ROUNDS = [
    round_figure(0, "strong", 4.0, 9.0), round_figure(0, "at least once", 2.0, 3.0),
    round_figure(1, "strong", 8.0, 8.0), round_figure(1, "at least once", 2.0, 4.0),
    round_figure(2, "strong", 3.0, 4.0), round_figure(2, "at least once", 1.0, 4.0),
]  # fmt: skip


def test_the_papers_ratios_stand_beside_ours() -> None:
    ours, weak, paper = table(ROUNDS).splitlines()[2:]
    assert ours == "| millwheel, strong : at least once | 3 (2 to 4) | 2 (1 to 3) |"
    assert weak == "| millwheel, strong : weak | no result | no result |"
    assert paper == "| MillWheel's paper | 9.4 | 3.1 |"
    assert [name for name, _ in bars(ROUNDS)] == [
        "millwheel, p50", "the paper, p50", "millwheel, p95", "the paper, p95",
    ]  # fmt: skip
    assert bars(ROUNDS)[1][1].median == pytest.approx(9.36, abs=0.01)


def test_a_campaign_without_both_guarantees_has_no_such_table() -> None:
    assert table(ROUNDS[:1]) == ""
    assert bars(ROUNDS[:1]) == []
