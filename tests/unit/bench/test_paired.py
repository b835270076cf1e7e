from bench.figures import Figure
from bench.paired import differences, ratios


def figure(run: int, variant: str, value: float, correct: bool = True) -> Figure:
    return Figure(
        part="C", contestant="millwheel", variant=variant, run=run, campaign="s", at="",
        settings={}, machine={},
        metrics={"p50_ms": value}, correct=correct,
    )  # fmt: skip


ROUNDS = [
    figure(0, "strong", 4.0), figure(0, "weak", 2.0),
    figure(1, "strong", 8.0), figure(1, "weak", 2.0),
    figure(2, "strong", 3.0), figure(2, "weak", 1.0),
]  # fmt: skip


def test_two_variants_are_compared_within_each_round() -> None:
    times, more = (
        ratios(ROUNDS, "p50_ms", "strong", "weak"),
        differences(ROUNDS, "p50_ms", "strong", "weak"),
    )
    assert times is not None
    assert more is not None
    assert (times.runs, times.median, times.least, times.greatest) == (3, 3.0, 2.0, 4.0)
    assert (more.runs, more.median, more.least, more.greatest) == (3, 2.0, 2.0, 6.0)


def test_a_round_in_which_one_was_wrong_does_not_count() -> None:
    found = ratios(
        [*ROUNDS[:4], figure(2, "strong", 300.0, correct=False), ROUNDS[5]],
        "p50_ms",
        "strong",
        "weak",
    )
    assert found is not None
    assert (found.runs, found.greatest) == (2, 4.0)
    assert ratios(ROUNDS[:1], "p50_ms", "strong", "weak") is None
