"""Questions to a harness: the answer says of which shard and commit it is, and errors are those of
a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.engine.queries.model import QueryError
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.slices.test_computation import S, pipeline


def test_an_answer_names_its_shard_its_token_and_its_commit(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        harness.push("events", {"at": 5 * S, "ad": 1, "cost": 3, "user": 1})
        answer = harness.ask("clicks.n", 1, "10s", 10 * S)
        assert answer.values == {"n": 1}
        assert answer.shard.startswith("clicks")
        assert answer.token >= 1
        assert answer.commit >= 1


def test_a_formula_without_a_name_can_be_asked(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        for cost in (3, 5):
            harness.push("events", {"at": 5 * S, "ad": 1, "cost": cost, "user": 1})
        assert harness.ask("clicks.spend / clicks.n", 1, "10s", 10 * S).values == {"value": 4}
        with pytest.raises(QueryError) as caught:
            harness.ask("clicks.spend /", 1, "10s", 10 * S)
        assert caught.value.code == "bad_formula"


def test_what_does_not_exist_or_keeps_nothing_says_so(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        with pytest.raises(QueryError) as caught:
            harness.ask("clikcs", 1, "10s")
        assert caught.value.code == "unknown_indicator"
        with pytest.raises(QueryError, match="longer than 0"):
            harness.ask("clicks", 1)


def test_the_shard_of_a_key_of_slices_is_the_one_that_answers(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path), shards=7) as harness:
        for ad in range(8):
            harness.push("events", {"at": 5 * S, "ad": ad, "cost": 3, "user": 1})
            assert (
                harness._shard("clicks", ad).identity.shard
                == harness.ask("clicks.n", ad, "10s", 10 * S).shard
            )
