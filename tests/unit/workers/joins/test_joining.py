"""Joins that take whole bundles say what they say record by record."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.forms import window_of_join
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness, assert_survives_crashes
from millwheel.workers.host.assembly import Assembly
from millwheel.workers.joins import joining
from millwheel.workers.joins.joining import JoinOperator
from millwheel.workers.operators.window_callback import WindowCallbackOperator

Row = dict[str, Any]
PIPELINE = """
pipeline: joined
streams:
  shown:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
  clicked:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    window: {window}
    join: {how}
    {more}
    output: matched
"""


def written(
    folder: Path, how: str = "outer", key: str = "ad", more: str = "", window: str = "{tumbling: 10us, offset: 3us}"
) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(how=how, key=key, more=more, window=window))
    return str(path)


@contextmanager
def in_rows(wanted: bool) -> Iterator[None]:
    """Within it joins keep an entry for each key and window."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(Assembly, "_joined_by_bundle", lambda self, spec: None)
        yield


def row(at: int, ad: Any = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what, "more": {"of": [ad, what]}}


keys = st.sampled_from([1, 2, "1", "ä", -5])
rows = st.lists(st.builds(row, st.integers(-40, 40), keys, st.sampled_from("xyz")), max_size=6)
pushes = st.lists(st.tuples(st.sampled_from(["shown", "clicked"]), rows), max_size=8)


def said(path: str, story: list[tuple[str, list[Row]]], by_record: bool, form: type) -> dict[str, Any]:
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        for stream, values in story:
            harness.push(stream, values)
        [shard] = harness._cluster.shards_of("matched")
        assert type(shard.operator) is form
        harness.finish()
        streams = ("matched", "behind") if "behind" in Path(path).read_text() else ("matched",)
        made = {name: [json.dumps(value, sort_keys=True) for value in harness.read(name)] for name in streams}
        # Of one key and window, the pairs come in the order of arrival.
        return {"counters": harness.counters, **{name: sorted(values) for name, values in made.items()}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joins")


@pytest.mark.parametrize("key", ["ad", "[ad, what]"])
@pytest.mark.parametrize(("how", "more"), [("inner", ""), ("left", "late: {side: behind}"), ("outer", "")])
@pytest.mark.parametrize("most", [32 << 20, 150], ids=["in memory", "too large"])
@given(story=pushes)
@settings(max_examples=7, deadline=None)
def test_whole_bundles_give_the_pairs_of_records_one_by_one(
    folder: Path, key: str, how: str, more: str, most: int, story: list[tuple[str, list[Row]]]
) -> None:
    path = written(folder / f"{how}-{len(key)}-{most}", how, key, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "_MOST_BYTES", most)
        found = said(path, story, False, JoinOperator)
    assert found == said(path, story, True, WindowCallbackOperator)


def records(count: int, seed: int, keys: int = 4) -> list[Row]:
    rng = random.Random(seed)
    return [row(i * 2 + rng.randrange(4), rng.randrange(keys), rng.choice("xyz")) for i in range(count)]


ODD = {"far": row(2**62 + 5), "marked": {**row(3), "__retraction__": 1}}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_records_are_joined_as_in_rows_and_nothing_is_lost(folder: Path, odd: Row) -> None:
    """A time that no column holds sends the open windows to the rows. What looks like a retraction is data here."""
    path = written(folder / "odd")
    first, second = records(30, 1), records(30, 2)
    story = [("shown", first[:15]), ("clicked", second[:15]), ("shown", [*first[15:], odd]), ("clicked", second[15:])]
    found = said(path, story, False, JoinOperator)
    assert found == said(path, story, True, WindowCallbackOperator)
    assert len(found["matched"]) > 30


def test_pairs_come_in_the_order_of_arrival(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", "inner"), shards=1) as harness:
        for number in range(40):  # segments of several levels
            harness.push("shown", row(9 - number % 4, what=str(number)))
        harness.push("clicked", [row(5, what="a"), row(4, what="b")])
        harness.finish()
        found = [(pair["shown"]["what"], pair["clicked"]["what"]) for pair in harness.read("matched")]
        assert found == [(str(number), other) for number in range(40) for other in "ab"]


@pytest.mark.parametrize("most", [32 << 20, 2_000], ids=["in memory", "too large"])
def test_a_crash_at_any_place_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(joining, "_MOST_BYTES", most)
    path = written(folder / f"crash-{most}")
    story = {"shown": records(25, 3), "clicked": records(25, 4)}
    assert assert_survives_crashes(path, story, every=4) > 10


def test_windows_and_their_state_are_seen_while_they_are_open(folder: Path) -> None:
    with PipelineHarness(written(folder / "open")) as harness:
        harness.push("shown", [row(5), row(6), row(17), row(5, ad="a")])
        assert [tuple(window) for window in harness.open_windows("matched", 1)] == [(3, 13), (13, 23)]
        assert harness.state("matched", "a").keys() == {(3, 13)}
        harness.crash()
        assert [tuple(window) for window in harness.open_windows("matched", 1)] == [(3, 13), (13, 23)]
        harness.finish()
        assert harness.open_windows("matched", 1) == []


def spec_of(path: str) -> tuple[ComputationSpec, PipelineSpec]:
    pipeline = load_pipeline(Path(path))
    return pipeline.computations[0], pipeline


@pytest.mark.parametrize(
    ("more", "window", "whole"),
    [
        ("", "{tumbling: 10us}", True),
        ("late: {side: behind}", "{tumbling: 1d, time_zone: Europe/Berlin}", True),
        ("productions: weak", "{tumbling: 10us}", False),
        ("", "{sliding: 10us, every: 5us}", False),
        ("", "{session: 5us}", False),
        ("", "{count: 3}", False),
    ],
)
def test_joins_in_tumbling_windows_take_whole_bundles(folder: Path, more: str, window: str, whole: bool) -> None:
    found = window_of_join(*spec_of(written(folder / "plan", more=more, window=window)))
    assert (found is not None) == whole
