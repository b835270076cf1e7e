from pathlib import Path

import pytest

from bench import rounds
from bench.environments import UnavailableEnvironmentError
from bench.figures import read
from bench.rounds import Entry, Measured, Wanted, alternate


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "cache", lambda: tmp_path / "cache")


class Scripted:
    """A contestant that says in which order it was asked."""

    def __init__(self, name: str, asked: list[str], fails: int = 0) -> None:
        self.name, self.asked, self.fails = name, asked, fails

    def measure(self, folder: Path) -> Measured:
        assert not list(folder.iterdir())
        self.asked.append(self.name)
        self.fails -= 1
        return (
            Measured({}, None, "it fell over")
            if self.fails >= 0
            else Measured({"records_per_s": 1.0}, True)
        )

    def entry(self) -> Entry:
        return Entry(self.name, "", self.measure)


def test_contestants_run_in_alternation_and_every_figure_is_kept(tmp_path: Path) -> None:
    asked: list[str] = []
    wanted = Wanted(2, results=tmp_path / "figures")
    found = alternate(
        "A", [Scripted(name, asked).entry() for name in ("millwheel", "other")], {}, wanted
    )
    assert asked == ["millwheel", "other"] * 2
    assert list(read(wanted.file)) == found
    assert len({figure.campaign for figure in found}) == 1


def test_only_those_peers_run_that_were_asked_for(tmp_path: Path) -> None:
    asked: list[str] = []
    entries = [Scripted(name, asked).entry() for name in ("millwheel", "bytewax, 2", "flink")]
    alternate("A", entries, {}, Wanted(1, peers=("bytewax",), results=tmp_path / "figures"))
    alternate("A", entries, {}, Wanted(1, ours_only=True, results=tmp_path / "figures"))
    assert asked == ["millwheel", "bytewax, 2", "millwheel"]


def test_a_resumed_campaign_runs_only_what_is_missing_or_failed(tmp_path: Path) -> None:
    asked: list[str] = []
    entries = [Scripted("millwheel", asked).entry(), Scripted("other", asked, fails=1).entry()]
    first = alternate("A", entries, {"n": 1}, Wanted(1, results=tmp_path / "figures"))
    again = alternate("A", entries, {"n": 1}, Wanted(1, resume=True, results=tmp_path / "figures"))
    assert asked == ["millwheel", "other", "other"]
    assert {figure.campaign for figure in again} == {first[0].campaign}


def test_other_settings_begin_another_campaign(tmp_path: Path) -> None:
    asked: list[str] = []
    entries = [Scripted("millwheel", asked).entry()]
    first = alternate("A", entries, {"n": 1}, Wanted(1, results=tmp_path / "figures"))
    other = alternate("A", entries, {"n": 2}, Wanted(1, resume=True, results=tmp_path / "figures"))
    assert first[0].campaign != other[0].campaign


def test_a_peer_that_cannot_be_installed_is_a_figure_with_the_reason(tmp_path: Path) -> None:
    def measure(folder: Path) -> Measured:
        raise UnavailableEnvironmentError("needs an older Python")

    [figure] = alternate(
        "A", [Entry("millwheel", "", measure)], {}, Wanted(1, results=tmp_path / "figures")
    )
    assert (figure.error, figure.metrics) == ("needs an older Python", {})
