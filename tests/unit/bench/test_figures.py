from pathlib import Path

from bench.figures import Figure, append, latest_campaign, read


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
