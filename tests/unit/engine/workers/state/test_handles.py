"""What a callback holds of its state: values, lists and maps, and their times to live."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.engine.queries.model import QueryError
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.errors import RecordError
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.state.test_keyed_state import Bench


def test_a_list_grows_item_by_item(bench: Bench) -> None:
    for item in ("a", "b", "c"):
        bench.it.items.append(item)
        bench.commit()
    bench.reopen()
    assert list(bench.it.items) == ["a", "b", "c"]
    assert len(bench.it.items) == 3
    bench.it.items.clear()
    bench.commit()
    assert not bench.store.data


def test_a_map_has_entries_of_its_own(bench: Bench) -> None:
    bench.it.ages["x"] = 1
    bench.it.ages["y", 2] = 2
    bench.commit()
    bench.reopen()
    assert "x" in bench.it.ages
    assert bench.it.ages["x"] == 1
    assert dict(bench.it.ages.items()) == {"x": 1, ("y", 2): 2}
    del bench.it.ages["x"]
    assert bench.it.ages.get("x", 9) == 9
    assert dict(bench.it.ages.items()) == {("y", 2): 2}
    with pytest.raises(KeyError):
        bench.it.ages["x"]


def test_a_look_at_a_map_encodes_nothing_of_other_states(bench: Bench) -> None:
    """Each record of a busy key would encode again what all before it have changed."""
    bench.it.brief_ages["x"] = 1
    assert dict(bench.it.ages.items()) == {}
    assert not bench.overlay
    assert dict(bench.it.brief_ages.items()) == {"x": 1}
    assert bench.overlay


def test_a_map_key_that_cannot_be_one_is_told(bench: Bench) -> None:
    with pytest.raises(RecordError, match="ages"):
        bench.it.ages[1.5] = 1


def test_a_value_reads_as_absent_after_its_time_to_live(bench: Bench) -> None:
    bench.it.brief.set(1)
    assert bench.timers == {TTL_TAG + "brief": 10_000_000}
    bench.commit()
    assert bench.at("k", 9_999_999).brief.get() == 1
    assert bench.at("k", 10_000_000).brief.get() is None
    bench.reopen()
    assert bench.at("k", 10_000_000).brief.get() is None


def test_writing_again_prolongs_the_time_to_live(bench: Bench) -> None:
    bench.it.brief.set(1)
    bench.commit()
    bench.at("k", 8_000_000).brief.set(2)
    bench.commit()
    bench.pass_by(10_000_001)
    assert bench.at("k", 17_000_000).brief.get() == 2


def test_the_timer_removes_what_nobody_touches(bench: Bench) -> None:
    bench.it.brief.set(1)
    bench.it.brief_items.append(1)
    bench.it.brief_ages["x"] = 1
    bench.commit()
    bench.pass_by(10_000_001)
    assert not bench.store.data
    assert not bench.timers


def test_entries_of_a_map_live_and_die_apart(bench: Bench) -> None:
    bench.it.brief_ages["x"] = 1
    bench.at("k", 5_000_000).brief_ages["y"] = 2
    bench.commit()
    bench.pass_by(10_000_001)
    assert dict(bench.at("k", 11_000_000).brief_ages.items()) == {"y": 2}
    assert bench.timers[TTL_TAG + "brief_ages"] == 15_000_000


def test_an_expired_list_starts_anew(bench: Bench) -> None:
    bench.it.brief_items.append(1)
    bench.commit()
    late = bench.at("k", 20_000_000)
    assert list(late.brief_items) == []
    late.brief_items.append(2)
    assert list(late.brief_items) == [2]


def test_a_value_may_be_changed_in_place_after_a_look_at_a_map() -> None:
    bench = Bench()
    bench.at("other", 0).stats.get().n = 1
    it = bench.at("k", 0)
    stats = it.stats.get()
    it.ages["a"] = 1
    for _ in range(2):
        for _, age in it.ages.items():
            stats.n += age
    bench.commit()
    bench.reopen()
    assert [bench.at(key, 0).stats.get().n for key in ("k", "other")] == [2, 1]


CODE = """
from millwheel import Computation, ListState, MapState, ValueState

class Seen(Computation):
    count = ValueState(int, default=0)
    pages = ListState(str)
    by_page = MapState(int)

    def process_record(self, ctx, record):
        page = record.value["page"]
        self.count.set(self.count.get() + 1)
        self.pages.append(page)
        self.by_page[page] = self.by_page.get(page, 0) + 1

class Nothing(Computation):
    def process_record(self, ctx, record):
        pass
"""
YAML = """
pipeline: asked
streams: {visits: {source: {injection: {}}, timestamp: at}}
computations:
  seen: {input: {visits: {key: user}}, callback: "own_states:Seen"}
  nothing: {input: {visits: {key: user}}, callback: "own_states:Nothing"}
"""


def test_value_list_and_map_states_answer_by_name(tmp_path: Path) -> None:
    (tmp_path / "own_states.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(YAML)
    with PipelineHarness(str(tmp_path / "p.yaml"), crash_every=17) as harness:
        for at, page in enumerate("aba"):
            harness.push("visits", {"at": at, "user": 7, "page": page})
        found = {"count": 3, "pages": ["a", "b", "a"], "by_page": {"a": 2, "b": 1}}
        assert harness.ask("seen", 7).values == found
        assert harness.ask("seen.by_page", 7).values == {"by_page": {"a": 2, "b": 1}}
        assert harness.ask("seen", 8).values == {"count": 0, "pages": [], "by_page": {}}
        assert harness.state("seen", 7) == found
        for indicator, code in (("seen.cuont", "unknown_indicator"), ("nothing", "not_asked")):
            with pytest.raises(QueryError) as caught:
                harness.ask(indicator, 7)
            assert caught.value.code == code


def test_values_are_looked_at_together_without_a_cache(bench: Bench) -> None:
    for number, key in enumerate("ab", 1):
        bench.at(key, 0).number.set(number)
    bench.commit()
    bench.it.number.cells.clear()
    assert [*bench.it.number.values_of(["b", "x", "a"])] == [(0, 2), (2, 1)]
    assert not bench.it.number.cells
