"""The state of callbacks is asked by name, and read only."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.queries.model import QueryError
from millwheel.testing import PipelineHarness

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
