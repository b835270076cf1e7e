import pytest

from bench.figures import Figure
from bench.strength import bars, table


def figure(run: int, variant: str, p50: float, p95: float, correct: bool = True) -> Figure:
    return Figure(
        part="C", contestant="millwheel", variant=variant, run=run, campaign="s", at="",
        settings={}, machine={},
        metrics={"p50_ms": p50, "p95_ms": p95}, correct=correct,
    )  # fmt: skip


ROUNDS = [
    figure(0, "strong", 4.0, 9.0), figure(0, "at least once", 2.0, 3.0),
    figure(1, "strong", 8.0, 8.0), figure(1, "at least once", 2.0, 4.0),
    figure(2, "strong", 3.0, 4.0), figure(2, "at least once", 1.0, 4.0),
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
