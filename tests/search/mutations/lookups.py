"""Deliberate mistakes in lookups."""

from __future__ import annotations

from typing import Any

from millwheel.connect.lookups.base import AnswerCache
from millwheel.engine.workers.operators.lookups import LookedUp, LookupOperator
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=40, features="lookup", variants="bundles together")
def answers_go_to_the_wrong_keys_of_a_bundle() -> Context:
    """Of several answers, each goes to the key behind its own."""
    right = LookupOperator._receive

    def wrong(
        self: LookupOperator, answers: list[Any], error: Exception | None, now_us: int
    ) -> None:
        right(self, [*answers[1:], *answers[:1]], error, now_us)

    return replaced(LookupOperator, "_receive", wrong)


@mistake(within=20, features="lookup", variants="reference")
def a_key_without_an_answer_counts_as_refused() -> Context:
    """A record of which nothing is known is not emitted, whatever ``missing`` says."""
    right = LookedUp.process_record

    def wrong(self: LookedUp, ctx: Any, record: Any) -> None:
        if None not in self.answers.values():
            right(self, ctx, record)

    return replaced(LookedUp, "process_record", wrong)


@mistake(within=60, features="lookup", variants="together bundles reference")
def the_cache_gives_the_newest_answer_for_every_key() -> Context:
    """Whoever asks the cache gets what was put there last."""
    right = AnswerCache.get

    def wrong(self: AnswerCache, name: bytes, now_us: int) -> Any:
        found = right(self, name, now_us)
        kept = list(self._entries.values())
        return kept[-1][1] if kept else found

    return replaced(AnswerCache, "get", wrong)
