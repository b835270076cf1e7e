from __future__ import annotations

from millwheel.workers.bundle.value_sizes import carried


def test_plain_records_can_all_be_carried() -> None:
    assert carried([{"a": 1}, {"b": [1.5, None, "x"]}, {"c": 2**64 - 1}], 1000)[1] == {}


def test_an_integer_beyond_64_bits_condemns_its_own_record_only() -> None:
    _, found = carried([{"a": 1}, {"a": 10**30}, {"a": {"deep": [-(2**63) - 1]}}], 1000)
    assert sorted(found) == [1, 2]
    assert all("cannot be carried" in reason for reason in found.values())


def test_a_record_over_the_limit_is_told_by_its_size_and_no_other() -> None:
    size, found = carried([{"a": "x" * 50}, {"a": "x" * 2000}, {"a": "y" * 60}], 1000)
    assert size > 2110
    assert sorted(found) == [1]
    assert "over limits.record (1kB)" in found[1]
