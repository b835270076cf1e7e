"""Steps in a shard: what goes on, with which key and time, and what becomes of records that they cannot use."""

from __future__ import annotations

from typing import Any

from millwheel.core.pipeline.spec import StepKind, StepSpec
from tests.unit.workers.bench import ShardBench, computation, pipeline

SPLIT = StepSpec(StepKind.FLAT_MAP, "words:split")
LONG = StepSpec(StepKind.FILTER, expression="len(word) > 2")


def split(value: Any) -> Any:
    return [{"word": word} for word in value["text"].split()]


def bench(*steps: StepSpec) -> ShardBench:
    return ShardBench(split, spec=pipeline(computation(steps=steps)))  # type: ignore[arg-type]


def test_results_have_the_key_and_the_time_of_their_record() -> None:
    one = bench(SPLIT, LONG)
    one.deliver(("ann", {"text": "now and so on then"}, 5), ("bob", {"text": "me"}, 6))
    one.run()
    one.settle()
    sends = [send.batch for send in one.sends() if send.batch.stream == "out"]
    assert [(batch.keys, batch.timestamps) for batch in sends] == [(["ann"] * 3, [5] * 3)]


def test_a_record_that_a_step_cannot_use_is_a_dead_letter_and_the_others_go_on() -> None:
    one = bench(SPLIT, LONG)
    one.deliver(("a", {"text": "first"}, 1), ("a", {"txt": "?"}, 2), ("b", {"text": "last"}, 3))
    assert one.through() == [{"word": "first"}, {"word": "last"}]
    (letter,) = one.letters
    assert letter["reason"].startswith("flat_map words:split, filter len(word) > 2 failed 3 times on this record")
    assert letter["value"] == {"txt": "?"}


def test_a_crash_before_the_acks_sends_the_same_results_again_and_no_others() -> None:
    one = bench(SPLIT)
    rows = (("a", {"text": "x y"}, 1), ("b", {"text": "z"}, 2))
    one.deliver(*rows)
    one.run()
    one.settle()
    before = [send.batch.seqs for send in one.sends()]
    one.crash()
    one.deliver(*rows)
    one.run()
    one.settle()
    assert [send.batch.seqs for send in one.sends()] == before == [[1, 2, 3]]
