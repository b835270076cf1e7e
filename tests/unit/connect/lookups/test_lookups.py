from __future__ import annotations

import pytest

from millwheel.connect.connectors.postgres.lookup import PostgresRowLookup
from millwheel.connect.connectors.redis.lookup import RedisKeyLookup
from millwheel.connect.lookups import build_lookup, known_lookups
from millwheel.core.pipeline.work import LookupSpec


def test_the_built_in_kinds_are_known_and_built() -> None:
    assert known_lookups() == ["postgres", "redis"]
    redis = build_lookup(LookupSpec("redis", {"url": "redis://h", "key": "item:{item}"}), "")
    postgres = build_lookup(
        LookupSpec("postgres", {"dsn": "postgresql://h/db", "table": "t", "by": "item"}), ""
    )
    assert (type(redis), type(postgres)) == (RedisKeyLookup, PostgresRowLookup)


def test_a_kind_that_nobody_has_is_told_with_one_that_is_meant() -> None:
    with pytest.raises(ValueError, match=r"there is no lookup 'redsi'.*redis"):
        build_lookup(LookupSpec("redsi", {}), "")
