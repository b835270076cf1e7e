from __future__ import annotations

from bench.uv_opened import figures


def test_a_shard_is_filled_asked_and_opened() -> None:
    found = figures(20_000)
    assert found["devices"] == 20_000
    assert found["new_us"] > 0
    assert found["open_s"] < 60
