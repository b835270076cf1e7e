from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.connectors.external.absence import forget
from millwheel.connect.lookups.base import LookupRefusedError
from millwheel.errors import UnavailableError
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.lookups import FakeLookup

PIPELINE = """
pipeline: p
streams: {orders: {source: {files: {path: orders.jsonl, format: jsonl}}, timestamp: {field: at,
  unit: us}}}
computations:
  priced:
    input: {orders: {key: user}}
    enrich: {lookup: {redis: {url: "redis://localhost", key: "item:{item}"}}, %s}
    output: priced
"""
PRICES = {"tea": {"cents": 80, "title": "Tea"}, "ink": {"cents": 95, "title": "Ink"}}


def harness(
    tmp_path: Path, options: str = "as: info", answers: Any = None, **more: Any
) -> PipelineHarness:
    forget()
    (tmp_path / "p.yaml").write_text(PIPELINE % options)
    return PipelineHarness(
        tmp_path / "p.yaml", lookups={"priced": PRICES if answers is None else answers}, **more
    )


def order(at: int, item: Any, user: str = "ann") -> dict[str, Any]:
    return {"at": at, "user": user, "item": item}


def test_a_record_gets_the_answer_as_a_field(tmp_path: Path) -> None:
    with harness(tmp_path) as run:
        run.push("orders", [order(1, "tea"), order(2, "owl"), order(3, None)])
        found = {row["at"]: row["info"] for row in run.take("priced")}
        assert found == {1: PRICES["tea"], 2: None, 3: None}
        assert run.counters["unmatched"] == 2


@pytest.mark.parametrize("fields", ["[cents]", "{cents: cents}"])
def test_or_fields_of_the_answer(tmp_path: Path, fields: str) -> None:
    with harness(tmp_path, f"fields: {fields}, by: lower(item)") as run:
        run.push("orders", [order(1, "TEA"), order(2, "OWL")])
        assert sorted(row["cents"] or 0 for row in run.take("priced")) == [0, 80]


def test_records_without_an_answer_are_kept_dropped_or_dead(tmp_path: Path) -> None:
    with harness(tmp_path, "as: info, missing: drop") as run:
        run.push("orders", [order(1, "owl"), order(2, "tea")])
        assert [row["at"] for row in run.take("priced")] == [2]
    with harness(tmp_path, "as: info, missing: dead_letter") as run:
        run.push("orders", [order(1, "owl"), order(2, "tea")])
        assert [row["at"] for row in run.take("priced")] == [2]
        (letter,) = run.read("dead_letters")
        assert "redis has nothing for ('owl',)" in letter["reason"]
        assert letter["value"] == order(1, "owl")
        run.push("orders", [order(3, None)])
        assert "redis has nothing for (None,)" in run.read("dead_letters")[1]["reason"]


def test_the_keys_of_a_bundle_are_one_request(tmp_path: Path) -> None:
    fake = FakeLookup(PRICES, ["item"])
    with harness(tmp_path, answers=fake, shards=1) as run:
        run.push(
            "orders", [order(n, item) for n, item in enumerate(["tea", "ink", "tea", "owl", "tea"])]
        )
        assert fake.requests == [["tea", "ink", "owl"]]
        assert (run.counters["lookup_misses"], run.counters["lookup_hits"]) == (3, 2)


def test_a_request_has_at_most_batch_keys(tmp_path: Path) -> None:
    fake = FakeLookup(PRICES, ["item"])
    with harness(tmp_path, "as: info, batch: 2", answers=fake, shards=1) as run:
        run.push("orders", [order(n, n) for n in range(5)])
        assert fake.requests == [[0, 1], [2, 3], [4]]
        assert len(run.take("priced")) == 5


def test_answers_are_kept_for_a_time_and_in_a_number(tmp_path: Path) -> None:
    fake = FakeLookup(PRICES, ["item"])
    with harness(tmp_path, "as: info, cache: {size: 2, ttl: 1s}", answers=fake, shards=1) as run:
        for at, item in enumerate(["tea", "tea", "owl", "owl", "ink", "tea"]):
            run.push("orders", order(at, item))
        assert fake.requests == [["tea"], ["owl"], ["ink"], ["tea"]]
        run.advance_processing_time(1_000_000)
        run.push("orders", order(9, "tea"))
        assert fake.requests[4:] == [["tea"]]


def test_that_there_is_nothing_need_not_be_kept(tmp_path: Path) -> None:
    fake = FakeLookup(PRICES, ["item"])
    with harness(
        tmp_path, "as: info, cache: {size: 2, ttl: 1s, absent: false}", answers=fake
    ) as run:
        for at in range(2):
            run.push("orders", order(at, "owl"))
        assert fake.requests == [["owl"], ["owl"]]


def test_numbers_and_truths_are_different_keys(tmp_path: Path) -> None:
    fake = FakeLookup(lambda key: repr(key), ["item"])
    with harness(tmp_path, answers=fake, shards=1) as run:
        run.push("orders", [order(n, item) for n, item in enumerate([1, True, 1.0])])
        assert sorted(row["info"] for row in run.take("priced")) == ["1", "1.0", "True"]


def test_one_key_that_is_refused_is_a_dead_letter_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    def answer(key: Any) -> Any:
        if key == "bad":
            raise LookupRefusedError("invalid input syntax")
        return PRICES.get(key)

    with harness(tmp_path, answers=answer, shards=1) as run:
        run.push("orders", [order(n, item) for n, item in enumerate(["tea", "bad", "ink", "owl"])])
        assert [row["item"] for row in run.take("priced")] == ["tea", "ink", "owl"]
        (letter,) = run.read("dead_letters")
        assert "invalid input syntax" in letter["reason"]


def test_while_the_target_is_away_records_and_the_watermark_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = True

    def answer(key: Any) -> Any:
        if away:
            raise UnavailableError("gone for lunch")
        return PRICES.get(key)

    with harness(tmp_path, answers=answer, shards=1) as run:
        run.push("orders", [order(5, "tea"), order(6, "ink")])
        run.advance_watermark(100)
        run.push("orders", order(101, "owl"))
        run.advance_processing_time(5_000_000)
        assert run.take("priced") == []
        assert "gone for lunch. Records wait for it, and the input with them" in caplog.text
        assert caplog.text.count("gone for lunch") == 1
        away = False
        run.advance_processing_time(6_000_000)
        assert [row["at"] for row in run.take("priced")] == [5, 6, 101]


def test_a_crash_loses_and_doubles_nothing(tmp_path: Path) -> None:
    calls = 0

    def answer(key: Any) -> Mapping[str, Any]:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise UnavailableError("a blink")
        return {"call": calls}

    with harness(tmp_path, answers=answer, crash_every=7) as run:
        for at in range(15):
            run.push("orders", order(at, at, f"u{at % 4}"))
            run.advance_processing_time(run.now + 200_000)
        run.finish()
        run.advance_processing_time(run.now + 60_000_000)
        assert sorted(row["at"] for row in run.read("priced")) == list(range(15))


def test_without_answers_the_harness_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE % "as: info")
    with pytest.raises(Exception, match="give the harness lookups="):
        PipelineHarness(tmp_path / "p.yaml")
