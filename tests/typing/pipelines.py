"""Checked by mypy and basedpyright in ``tests/slow/test_typing.py``: streams carry the type of
their records."""

from __future__ import annotations

from typing import Any

import msgspec
from typing_extensions import assert_type

from millwheel import (
    Computation,
    Context,
    InjectionSource,
    KeyedStream,
    Pipeline,
    Record,
    Stream,
    Tumbling,
    agg,
)


class Click(msgspec.Struct):
    user: str
    price: float


class Priced(msgspec.Struct):
    user: str
    cents: int


class Spend(Computation):
    def process_record(self, ctx: Context, record: Record[Click]) -> None:
        assert_type(record.value.price, float)
        record.value.prize  # error


def plain(stream: Stream, record: Record) -> Stream:  # both may stand without a type
    record.value.anything
    return stream.map(lambda value: value.anything)


p = Pipeline("p")
clicks = p.read("clicks", InjectionSource(), timestamp="at", schema=Click)
assert_type(clicks, Stream[Click])
assert_type(clicks.filter(lambda click: click.price > 1), Stream[Click])
assert_type(clicks.map(lambda click: Priced(click.user, round(click.price))), Stream[Priced])
assert_type(clicks.flat_map(lambda click: [click.user, click.user]), Stream[str])
assert_type(clicks.map({"who": "user"}), Stream[dict[str, Any]])
assert_type(clicks.key_by("user"), KeyedStream[Click])
assert_type(clicks.key_by(lambda click: click.user).deduplicate(within="1m"), Stream[Click])
assert_type(
    clicks.key_by("user").window(Tumbling("1m")).aggregate({"n": agg.count()}),
    Stream[dict[str, Any]],
)
assert_type(p.stream("others", schema=Priced), Stream[Priced])
free = p.read("free", InjectionSource(), timestamp="at")
assert_type(free.map(lambda value: value["x"]), Stream[Any])

clicks.filter(lambda click: click.prize > 1)  # error
clicks.map(lambda click: click.usr)  # error
clicks.flat_map(lambda click: click.price)  # error
clicks.key_by(lambda click: click.usr)  # error
clicks.map(lambda click: Priced(click.user, 1)).filter(lambda priced: priced.price > 1)  # error
clicks.filter("price > 1", shard=3)  # error
