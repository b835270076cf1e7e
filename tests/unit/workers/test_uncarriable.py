from __future__ import annotations

from millwheel.workers.source import uncarriable


def test_plain_records_can_all_be_carried() -> None:
    assert uncarriable([{"a": 1}, {"b": [1.5, None, "x"]}, {"c": 2**64 - 1}]) == {}


def test_an_integer_beyond_64_bits_condemns_its_own_record_only() -> None:
    found = uncarriable([{"a": 1}, {"a": 10**30}, {"a": {"deep": [-(2**63) - 1]}}])
    assert sorted(found) == [1, 2]
    assert all("cannot be carried" in reason for reason in found.values())
