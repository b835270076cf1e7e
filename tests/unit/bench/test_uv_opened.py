from __future__ import annotations

from bench.uv_opened import figures, forgetting


def test_a_shard_is_filled_asked_and_opened() -> None:
    found = figures(20_000)
    assert found["devices"] == 20_000
    assert found["new_us"] > 0
    assert found["open_s"] < 60


def test_a_shard_forgets_an_eighth_after_the_other() -> None:
    found = forgetting(48_000)
    assert 0 <= found["forget_ms"] <= found["longest_with_ttl_ms"]
