"""Answers in a worker's loop: who answers, when they leave, and how much of a step they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.queries.model import (
    Answer,
    AskedQueries,
    Consistency,
    Elsewhere,
    Finding,
    Found,
    Query,
    QueryError,
)
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import AnswerQueries, Gathering
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.ports import NoCopies
from millwheel.engine.workers.queries.answering import Answering
from millwheel.testing import PipelineHarness

ME, OTHER = WorkerName("me"), WorkerName("other")


class Fails:
    def answer(self, *_: object) -> Finding:
        raise ZeroDivisionError("no slices")


class Counts:
    def answer(self, query: Query, *_: object) -> Finding:
        return Finding({"n": query.key}, 0, 10)


def serving(name: str, operator: Any, made: int = 5, durable: int = 5) -> Any:
    shard = SimpleNamespace(
        identity=SimpleNamespace(shard=name, token=1),
        commits=SimpleNamespace(made=made, durable=durable, waiting=None),
        watermark=SimpleNamespace(input=7),
        meta=SimpleNamespace(watermark=6),
        operator=operator,
        store=None,
    )
    return SimpleNamespace(shard=shard, answers=True)


@dataclass
class Bench:
    """A worker with the lower half of the keys of ``c``."""

    operator: Any = field(default_factory=Counts)
    owner: str = OTHER
    next_owner: str = ""
    standby: str = ""
    clock_us: int = 0
    copies: Any = field(default_factory=NoCopies)

    def __post_init__(self) -> None:
        low, high = tile(2)
        entries = (
            ShardEntry("c-0", low, ME, 1, next_owner=WorkerName(self.next_owner)),
            ShardEntry("c-1", high, WorkerName(self.owner), 1, standby=WorkerName(self.standby)),
        )
        router = TableRouter()
        router.update(RangeTable("c", entries, 1))
        self.served = {"c-0": serving("c-0", self.operator)}
        self.out = Gathering()
        known = {entry.shard: entry for entry in entries}
        self.answering = Answering(
            self.served, router, known.get, ME, self.out, self._tick, self.copies, 3
        )  # type: ignore[arg-type]
        self.replies: list[Found] = []

    def _tick(self) -> int:
        self.clock_us += 1
        return self.clock_us

    def ask(self, *keys: int, consistency: Consistency = Consistency.DURABLE) -> list[Found]:
        queries = [Query("c", key, 1, 1, consistency=consistency) for key in keys]
        self.answering.asked(AskedQueries(queries, self.replies.extend))
        self.answering.step()
        return self.told()

    def told(self) -> list[Found]:
        self.answering.release()
        for effect in self.out.others:
            assert isinstance(effect, AnswerQueries)
            effect.reply(effect.outcomes)
        self.out.others = []
        return self.replies


MINE = [key for key in range(100) if key_hash(key) in tile(2)[0]]
THEIRS, FAILS = [key for key in range(100) if key_hash(key) in tile(2)[1]][:2]


def test_a_shard_of_this_worker_answers() -> None:
    (found,) = Bench().ask(MINE[0])
    assert found == Answer({"n": MINE[0]}, 0, 10, 7, True, "c-0", 1, 5)


def test_a_durable_answer_waits_for_its_commit_and_a_latest_one_does_not() -> None:
    bench = Bench()
    bench.served["c-0"].shard.commits = SimpleNamespace(made=6, durable=5, waiting=None)
    assert bench.ask(MINE[0]) == []
    bench.served["c-0"].shard.commits.durable = 6
    assert [each.commit for each in bench.told() if isinstance(each, Answer)] == [6]
    bench.served["c-0"].shard.commits.made = 7
    assert len(bench.ask(MINE[1], consistency=Consistency.LATEST)) == 2


def test_a_shard_that_left_before_its_commit_was_durable_takes_its_answer_back() -> None:
    bench = Bench()
    bench.served["c-0"].shard.commits = SimpleNamespace(made=6, durable=5, waiting=None)
    bench.ask(MINE[0])
    del bench.served["c-0"]
    (found,) = bench.told()
    assert isinstance(found, QueryError)
    assert found.code == "unavailable"


def test_keys_of_others_are_theirs_and_a_released_shard_is_its_successors() -> None:
    assert Bench().ask(THEIRS) == [Elsewhere(OTHER)]
    bench = Bench(next_owner=OTHER)
    bench.served["c-0"].answers = False
    assert bench.ask(MINE[0]) == [Elsewhere(OTHER, for_now=True)]


@pytest.mark.parametrize("owner", ["", ME])
def test_what_nobody_serves_yet_is_asked_for_again(owner: str) -> None:
    (found,) = Bench(owner=owner).ask(THEIRS)
    assert isinstance(found, QueryError)
    assert found.code == "unavailable"


def test_a_step_answers_for_its_share_and_goes_on_in_the_next() -> None:
    bench = Bench()
    keys = MINE[:8]
    assert bench.ask(*keys) == []
    steps = 1
    while bench.answering.step():
        steps += 1
    assert [each.values["n"] for each in bench.told() if isinstance(each, Answer)] == keys
    assert steps > 1


def test_what_a_copy_knows_answers_for_a_standby_only_where_nobody_serves_here() -> None:
    stale = Answer({"n": 1}, 0, 10, 6, True, "c-1", 1, 4, Consistency.STANDBY)

    class Copies:
        def answer(self, shard: str, query: Query) -> Answer | None:
            if query.key == FAILS:
                raise QueryError("bad_window", "not on edges")
            return stale if shard == "c-1" else None

    bench = Bench(copies=Copies())
    assert bench.ask(THEIRS) == [Elsewhere(OTHER)]
    bench.replies.clear()
    mine, theirs, wrong = bench.ask(MINE[0], THEIRS, FAILS, consistency=Consistency.STANDBY)
    assert isinstance(mine, Answer)
    assert mine.consistency is Consistency.DURABLE
    assert theirs is stale
    assert isinstance(wrong, QueryError)


def test_an_operator_that_fails_is_an_error_of_its_question() -> None:
    (found,) = Bench(operator=Fails()).ask(MINE[0])
    assert isinstance(found, QueryError)
    assert "ZeroDivisionError: no slices" in found.sentence


def test_a_key_that_nobody_owns_is_its_standbys_for_who_takes_what_that_knows() -> None:
    bench = Bench(owner="", standby=OTHER)
    assert isinstance(bench.ask(THEIRS)[0], QueryError)
    bench.replies.clear()
    assert bench.ask(THEIRS, consistency=Consistency.STANDBY) == [Elsewhere(OTHER)]
    assert Bench(standby="third").ask(THEIRS) == [Elsewhere(OTHER, standby=WorkerName("third"))]


M = 60_000_000
FORMS = {
    "slices": "slices: {every: 1m, keep: 1d}\n    aggregate: {n: count, s: {sum: v}}",
    "windows": "window: {tumbling: 1h}\n    aggregate: {n: count, s: {sum: v}}\n    output: out",
    "sessions": "window: {session: 1h}\n    aggregate: {n: count, s: {sum: v}}\n    output: out",
    "late": (
        "window: {tumbling: 1h}\n    allowed_lateness: 1h\n    accumulation: accumulating\n"
        "    aggregate: {n: count, s: {sum: v}}\n    output: out"
    ),
    "latest": (
        "window: {tumbling: 1h}\n    queryable: latest\n    aggregate: {n: count, s: {sum: v}}\n   "
        " output: out"
    ),
}


@contextmanager
def harness(folder: Path, form: str, declared: bool) -> Iterator[PipelineHarness]:
    fields = "fields: {k: int, t: int, v: int}" if declared else ""
    (folder / "p.yaml").write_text(f"""
pipeline: p
streams:
  in:
    source: {{files: {{path: "{folder}/none.jsonl", format: jsonl}}}}
    timestamp: t
    watermark: {{max_delay: 1d}}
    {fields}
computations:
  c:
    input: {{in: {{key: k}}}}
    {FORMS[form]}
sinks:
  dead_letters: {{stdout: {{}}}}
""")
    right = Assembly.__init__

    def with_policies(self: Assembly, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        self.stop_broken()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assembly, "__init__", with_policies)
        with PipelineHarness(str(folder / "p.yaml"), shards=1, workers=1, now=10 * M) as made:
            yield made


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("form", FORMS)
def test_a_question_during_a_step_that_waits_is_answered_from_before_it(
    tmp_path: Path, form: str, declared: bool
) -> None:
    with harness(tmp_path, form, declared) as made:
        shard = made._shard("c", 1)

        def asked() -> tuple[Any, int]:
            mode = {} if form == "slices" else {"mode": "open"}
            answer = made.ask("c", 1, "1h" if form == "slices" else None, until=10 * M, **mode)
            found = answer.values if form == "slices" else answer.values["windows"][0]
            return (found["n"], found["s"]), answer.commit

        made.push("in", [{"k": 1, "t": M, "v": 5}])
        before = asked()
        assert before[0] == (1, 5)
        made.push("in", [{"k": 1, "t": 2 * M, "v": 7}, {"k": 1, "t": 2 * M, "v": None}])
        assert shard.commits.waiting is not None
        assert asked() == before
        made.advance_processing_time(15 * M)
        assert shard.commits.waiting is None
        after = asked()
        assert after[0] == (2, 12), "nothing of before is kept"
        assert after[1] > before[1]


@pytest.mark.parametrize("key", [1, "abc", ("a", 1), 2**63, b"x", ""])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "slices"])
def test_a_key_that_no_record_can_have_has_nothing_and_is_no_failure(
    tmp_path: Path, form: str, key: Any
) -> None:
    with harness(tmp_path, form, True) as made:
        made.push("in", [{"k": 7, "t": M, "v": 5}])
        assert made.ask("c", key, mode="open").values["windows"] == []
