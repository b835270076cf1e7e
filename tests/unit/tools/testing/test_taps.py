from __future__ import annotations

from datetime import date

from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.tools.testing.taps import Taps, plain


def batch(number: int, *values: object) -> SinkBatch:
    return SinkBatch(number, 1, [SinkRecord("k", value, 5) for value in values])  # type: ignore[call-arg]


def test_what_is_published_is_seen_once_and_what_is_only_prepared_is_not() -> None:
    taps = Taps()
    writer = taps.build(SinkSpec("out", "files"), "/").open("s-0", 1)
    one = writer.prepare(batch(1, "a", "b"))
    assert [record.value for record in taps.visible["out"]] == []
    writer.publish(one)
    writer.publish(one)
    assert [record.value for record in taps.visible["out"]] == ["a", "b"]


def test_a_new_owner_forgets_what_its_shard_had_only_prepared() -> None:
    taps = Taps()
    tap = taps.build(SinkSpec("out", "files"), "/")
    lost, kept = (
        tap.open("s-0", 1).prepare(batch(1, "lost")),
        tap.open("s-1", 1).prepare(batch(1, "kept")),
    )
    tap.open("s-0", 2).sweep([])
    assert lost != kept
    tap.open("s-1", 1).publish(kept)
    assert [record.value for record in taps.visible["out"]] == ["kept"]


def test_a_value_that_is_changed_afterwards_stays_what_it_was() -> None:
    value = {"list": [1], "day": date(2026, 1, 1)}
    copy = plain(value)
    value["list"].append(2)  # type: ignore[attr-defined]
    assert copy == {"list": [1], "day": date(2026, 1, 1)}
