"""A chain gives what its computations give apart: results with their keys, times and order, dead
letters and counters of each; in one commit, also where workers die."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.failures import CallKind
from millwheel.core.order.chains import Chains
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import TOGETHER_MARK, Avoided, Doing, Hang
from millwheel.engine.workers.host import assembly
from millwheel.engine.workers.operators import chains as chain_links
from millwheel.engine.workers.operators.chains import ChainOperator, ReadChain
from millwheel.engine.workers.operators.record_computations import Branched, Stepped
from millwheel.engine.workers.sources import source
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.sources.partition import Part
from millwheel.testing import PipelineHarness
from millwheel.tools.testing import rewiring
from tests.unit.engine.workers.operators.column_runs import in_rows

HEAD = """
pipeline: chained
streams:
  bids:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: ms}}
    fields: {{auction: int, price: int, url: str, at: int}}
    watermark: {{max_delay: 3s, max_future: null}}
computations:
"""
PIPELINE = """
  made:
    input: {bids: {key: auction}}
    map: {auction: auction, price: price, ratio: "1000 / price", url: url}
    output: made
  some:
    input: made
    filter: "100 / (price - 5) < 40"
    output: some
  ways:
    input: some
    branch: {low: "price < 300", high: "price > 600"}
  lower:
    input: low
    map: {auction: auction, half: "price / 2"}
    output: lower
  counts:
    input: {high: {key: {url: url, price: "100 // (price % 50)"}}}
    window: {tumbling: 10s}
    aggregate: {n: count, sum: {sum: price}}
    output: counts
sinks:
  lower: {stdout: {}}
  counts: {stdout: {}}
"""
STREAMS, NODES = ("lower", "counts"), ("made", "some", "ways", "lower", "counts")
RESULTS = """
  counts:
    input: {bids: {key: auction}}
    window: {tumbling: 2s}
    aggregate: {n: count, sum: {sum: price}}
    output: counted
  means:
    input: counted
    map: {auction: auction, mean: "sum / (n - 3)", n: n}
    output: means
  ways:
    input: means
    branch: {lower: "n < 5", upper: otherwise}
sinks:
  lower: {stdout: {}}
  upper: {stdout: {}}
"""
"""Windows with three records have no mean."""


def bids(count: int, bad: bool = True) -> list[dict[str, Any]]:
    """Records of which a few have a price of 0 or 5, which a division cannot take."""
    rng = random.Random(7)
    prices = [*range(10 if bad else 6, 1_000), *([0, 5] * 9 if bad else [])]
    return [
        {
            "auction": rng.randrange(10),
            "price": rng.choice(prices),
            "url": f"https://a.b/{rng.choice(['x', 'é'])}",
            "at": 1_000_000 + index * 40 + rng.randrange(-1_000, 1_000),
        }
        for index in range(count)
    ]


@contextmanager
def apart() -> Iterator[None]:
    """Within it nothing is chained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "chains_of", lambda graph, spec, labelled: Chains())
        yield


def written(folder: Path, rows: list[dict[str, Any]], computations: str = PIPELINE) -> str:
    for part in range(2):
        lines = [json.dumps(row) + "\n" for row in rows[part::2]]
        (folder / f"{part}.jsonl").write_text("".join(lines))
    (folder / "pipeline.yaml").write_text(HEAD.format(folder=folder) + computations)
    return str(folder / "pipeline.yaml")


def found(path: str, **options: Any) -> dict[str, Any]:
    """Results by stream, letters and counters of each computation."""
    return found_in(path, STREAMS, NODES, **options)[0]


def found_in(
    path: str, streams: Sequence[str], nodes: Sequence[str], **options: Any
) -> tuple[dict[str, Any], dict[str, int]]:
    """Results of these streams, letters, and counters and commits of these nodes."""
    with PipelineHarness(path, run_sources=True, **options) as harness:
        harness.advance_processing_time(10**9)
        rows: dict[str, Any] = {
            name: sorted(
                repr((each.key, each.timestamp, each.value)) for each in harness.records(name)
            )
            for name in streams
        }
        letters = sorted(
            repr([letter[name] for name in ("computation", "stream", "reason", "key", "value")])
            for letter in harness.read("dead_letters")
        )
        counters = {name: harness.counters_of(name) for name in nodes}
        commits = {
            name: sum(shard.commits.made for shard in harness._cluster.shards_of(name))
            for name in nodes
        }
        return {**rows, "letters": letters, "counters": counters}, commits


READ = PIPELINE.replace("{bids: {key: auction}}", "bids")
"""The chain stands behind the source."""
LIST = PIPELINE.replace("url: url}", 'url: url, all: "[price]"}', 1)
"""A field that no column holds."""


@pytest.mark.parametrize(
    "form", ["columns", "rows", "a field without columns", "read", "read rows"]
)
def test_a_chain_gives_what_its_computations_give_apart(tmp_path: Path, form: str) -> None:
    text = READ if form.startswith("read") else LIST if form.startswith("a field") else PIPELINE
    path = written(tmp_path, bids(4_000), text)
    with in_rows(form.endswith("rows")):
        chained = found(path)
        with apart():
            wanted = found(path)
    assert chained == wanted
    assert len(chained["lower"]) > 100
    assert {letter.split("'")[1] for letter in chained["letters"]} == {
        "made",
        "some",
        "counts",
    }
    assert chained["counters"]["ways"]["unmatched"] > 100
    assert chained["counters"]["some"]["dead_letters"] > 10
    assert chained["counters"]["ways"]["dead_letters"] > 10  # records without a key for counts


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness consumes all streams; here only those of the sinks."""
    ends = ["lower", "counts", "dead_letters"]
    monkeypatch.setattr(rewiring, "streams_of", lambda spec: ends)


@pytest.mark.parametrize("every", [7, 23])
@pytest.mark.parametrize("text", [PIPELINE, READ], ids=["keyed", "read"])
def test_a_chain_gives_the_same_where_workers_die(
    tmp_path: Path, every: int, text: str, request: pytest.FixtureRequest
) -> None:
    path = written(tmp_path, bids(600), text)
    with apart():
        wanted = found(path)
    assert found(path, crash_every=every, workers=2, shards=2) == wanted
    request.getfixturevalue("unseen")
    assert found(path, crash_every=every, workers=2, shards=2) == wanted


def test_what_is_in_flight_counts_once_where_chains_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, bids(600))
    with apart():
        wanted = found(path)
    right, lives, chains = chain_links._links, Counter[str](), Counter[bool]()

    def sometimes(name: str, graph: Any, make: Any) -> Any:
        lives[name] += 1
        chains[odd := lives["made"] // 2 % 2 == 1] += 1
        return right(name, graph, make) if odd else []

    monkeypatch.setattr(chain_links, "_links", sometimes)
    assert found(path, crash_every=9) == wanted
    assert min(chains[True], chains[False]) > 10


@pytest.mark.parametrize("every", [None, 5, 13])
@pytest.mark.parametrize("form", ["columns", "rows"])
def test_results_of_windows_go_on_in_the_shards_that_made_them(
    tmp_path: Path, every: int | None, form: str
) -> None:
    path = written(tmp_path, bids(600), RESULTS)
    options = {} if every is None else {"crash_every": every, "workers": 2, "shards": 2}
    made = ("counted", "lower", "upper"), ("counts", "means", "ways")
    with in_rows(form == "rows"):
        with apart():
            wanted, commits = found_in(path, *made)
        assert min(commits.values()) > 0
        behind, commits = found_in(path, *made, **options)
    assert (behind, commits["means"], commits["ways"]) == (wanted, 0, 0)
    assert min(len(wanted[name]) for name in made[0]) > 10
    assert {letter.split("'")[1] for letter in wanted["letters"]} == {"means"}


@pytest.mark.parametrize("seen", [True, False])
def test_only_the_first_of_a_chain_takes_records_and_commits(
    tmp_path: Path, request: pytest.FixtureRequest, seen: bool
) -> None:
    path = written(tmp_path, bids(600))
    with apart():
        wanted = found(path)
    if not seen:
        request.getfixturevalue("unseen")
    assert found(path) == wanted
    with PipelineHarness(path, run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        shards = {name: list(harness._cluster.shards_of(name)) for name in NODES}
        assert {type(each.operator) for each in shards["made"]} == {ChainOperator}
        made = {name: sum(shard.commits.made for shard in of) for name, of in shards.items()}
        assert made["made"] > 0
        assert made["counts"] > 0
        assert made["some"] == made["ways"] == made["lower"] == 0
        sent = sum(shard.meta.next_seq - 1 for shard in shards["made"])
        high = sum(each.value["n"] for each in harness.records("counts"))
        letters = [letter["computation"] for letter in harness.read("dead_letters")]
        ends = len(harness.records("lower")) + high + letters.count("counts") + len(letters)
        assert (sent == ends) is not seen


def test_calls_of_each_computation_are_judged_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, bundles = ChainOperator.run, []

    def watched(self: ChainOperator, bundle: Bundle) -> None:
        right(self, bundle)
        bundles.append(bundle)

    monkeypatch.setattr(ChainOperator, "run", watched)
    letters = found(written(tmp_path, bids(600)))["letters"]
    failures = [call for bundle in bundles for call in bundle.failures]
    assert set(failures) == {
        CallKind("made", "record"),
        CallKind("some", "record of made"),
        CallKind("counts", "key of high"),
    }
    tried = sum(bundle.tried.get("record of made", 0) for bundle in bundles)
    assert tried == 600 - sum("'made', 'bids'" in letter for letter in letters)


def test_a_result_that_is_too_large_names_the_computation_that_made_it(tmp_path: Path) -> None:
    path = Path(written(tmp_path, [{**row, "url": "x" * 900} for row in bids(50, bad=False)]))
    text = path.read_text().replace('half: "price / 2"', "url: url, twice: url")
    path.write_text(text + "limits: {record: 1KiB}\n")
    letters = found(str(path))["letters"]
    assert letters
    assert {letter.split("'")[1] for letter in letters} == {"lower"}


def test_a_call_that_hangs_accuses_the_record_with_which_the_chain_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, bids(40, bad=False))
    said: list[Doing | None] = []
    operators: list[ChainOperator] = []
    branched, run = Branched.process_record, ChainOperator.run

    def process(self: Branched, ctx: Any, record: Any) -> None:
        said.append(operators[-1].doing())
        assert operators[-1].busy()
        branched(self, ctx, record)

    def watched(self: ChainOperator, bundle: Bundle) -> None:
        operators.append(self)
        before = self.progress()
        run(self, bundle)
        assert self.progress() != before
        assert not self.busy()
        assert self.doing() is None

    monkeypatch.setattr(Branched, "process_record", process)
    monkeypatch.setattr(ChainOperator, "run", watched)
    with in_rows():
        first = found(path)
        assert {each and (each.what, each.mark) for each in said} == {("batch", TOGETHER_MARK)}
        said.clear()

        def alone(self: ChainOperator, bundle: Bundle) -> None:
            self.avoid(Avoided(apart=True))
            watched(self, bundle)

        monkeypatch.setattr(ChainOperator, "run", alone)
        assert found(path) == first
    marks = [each.mark for each in said if each is not None and each.what == "record"]
    assert len(set(marks)) == len(marks) == len(said)

    def refusing(self: ChainOperator, bundle: Bundle) -> None:
        hang = Hang("made", "s", 1, "record", "1", marks[0], "steps.py:1", "5s")
        self.avoid(Avoided({marks[0]: hang}))
        watched(self, bundle)

    monkeypatch.setattr(ChainOperator, "run", refusing)
    with in_rows():
        (letter,) = found(path)["letters"]
    assert "callback_timeout" in letter
    assert letter.split("'")[1] == "made"


# --- behind a source ------------------------------------------------------------------------------

FEW = 2048
"""Bytes of a read: so that there are many."""


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadSize, "note", lambda self, was_full: None)
    monkeypatch.setattr(ReadSize, "__init__", lambda self: setattr(self, "bytes", FEW))


def unusable(path: str) -> None:
    """Lines of which the source makes dead letters."""
    file = Path(path).with_name("0.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:50], "{no\n", *lines[50:], '{"auction": 1}\n']))


def test_what_is_read_is_sent_to_nobody(tmp_path: Path, unseen: None) -> None:
    path = written(tmp_path, bids(600), READ)
    unusable(path)
    with PipelineHarness(path, run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        shards = {name: list(harness._cluster.shards_of(name)) for name in NODES}
        assert not any(shard.commits.made for name in NODES[:4] for shard in shards[name])
        letters = [letter["computation"] for letter in harness.read("dead_letters")]
        assert letters.count("source.bids") == 2
        high = sum(each.value["n"] for each in harness.records("counts"))
        ends = len(harness.records("lower")) + high + letters.count("counts") + len(letters)
        sources = harness._cluster.shards_of("source.bids")
        assert sum(shard.meta.next_seq - 1 for shard in sources) == ends


@pytest.mark.parametrize("before", ["chained", "sent"])
def test_a_chain_behind_a_source_comes_or_goes_between_two_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_reads: None, before: str
) -> None:
    path = written(tmp_path, bids(600), READ)
    unusable(path)
    with apart():
        wanted = found(path)
    right, lives = chain_links._links, Counter[str]()
    parts: set[bool] = set()
    pass_on = source.pass_on

    def links(name: str, graph: Any, make: Any) -> Any:
        lives[name] += 1
        first = lives[name] <= 2
        return right(name, graph, make) if first is (before == "chained") else []

    def passed_on(given: Any, part: Part, *more: Any) -> None:
        parts.add(part.with_results)
        pass_on(given, part, *more)

    monkeypatch.setattr(chain_links, "_links", links)
    monkeypatch.setattr(source, "pass_on", passed_on)
    assert found(path, crash_every=40) == wanted
    assert lives["source.bids"] > 6  # the first owner had time to read
    assert parts == ({True} if before == "chained" else set())


def test_a_call_that_hangs_accuses_the_record_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, bids(40, bad=False), READ)
    said: list[Doing | None] = []
    stepped, take = Stepped.process_record, ReadChain.take
    chains: list[ReadChain] = []

    def process(self: Stepped, ctx: Any, record: Any) -> None:
        assert chains[-1].busy()
        said.append(chains[-1].doing())
        stepped(self, ctx, record)

    def watched(self: ReadChain, *given: Any) -> None:
        chains.append(self)
        before = self.progress()
        take(self, *given)
        assert self.progress() != before
        assert not self.busy()

    monkeypatch.setattr(Stepped, "process_record", process)
    monkeypatch.setattr(ReadChain, "take", watched)
    with in_rows():
        first = found(path)
    marks = [each.mark for each in said if each is not None and each.what == "record"]
    assert len(set(marks)) == 40

    def refusing(self: ReadChain, *given: Any) -> None:
        hang = Hang("source.bids", "s", 1, "record", "1", marks[0], "steps.py:1", "5s")
        self.avoid(Avoided({marks[0]: hang}))
        watched(self, *given)

    monkeypatch.setattr(ReadChain, "take", refusing)
    with in_rows():
        (letter,) = found(path)["letters"]
    assert "callback_timeout" in letter
    assert letter.split("'")[1] == "made"
    assert not first["letters"]
