"""The options below ``redis:`` of a sink."""

from __future__ import annotations

from enum import Enum

import msgspec

from millwheel.connectors.redis.client import check_url
from millwheel.connectors.redis.templates import template
from millwheel.core.expressions.language import compile_expression
from millwheel.options import one_of
from millwheel.sinks.base import flush_us

WINDOW = "window"


class RedisKind(Enum):
    """The form of a row in Redis."""

    STRING = "string"
    HASH = "hash"
    SORTED_SET = "sorted_set"
    PUBSUB = "pubsub"


EXAMPLES = {
    "url": 'url: "redis://127.0.0.1:6379/0"',
    "key": 'key: "ctr:{ad_id}"',
    "kind": "kind: hash",
    "value": "value: total",
    "fields": "fields: [clicks, views]",
    "member": 'member: "{player}"',
    "score": "score: points",
    "expire": "expire: window",
    "flush": "flush: 20ms",
    "marks": 'marks: "millwheel:"',
}


class RedisSinkOptions(msgspec.Struct, frozen=True):
    """``key`` and ``member`` are texts with expressions in braces. ``kind`` is the form of a row: a ``string`` (the row
    as JSON, or ``value``), a ``hash`` (its fields, or ``fields`` of them), an entry ``member`` of a ``sorted_set`` with
    the number ``score``, or a message in the channel ``key`` (``pubsub``). ``expire`` is a duration, or ``window``: the
    key lives as long as the window is long. Keys that begin with ``marks`` note which batches have been written."""

    url: str
    key: str
    kind: str = "hash"
    value: str | None = None
    fields: list[str] = []
    member: str | None = None
    score: str | None = None
    expire: str | int | None = None
    flush: str | int = "20ms"
    marks: str = "millwheel:"

    def __post_init__(self) -> None:
        check_url(self.url)
        one_of("kind", self.kind, [kind.value for kind in RedisKind])
        flush_us(self.flush)
        self._check_expire()
        self._check_parts()
        for name, text, read in (
            ("key", self.key, template),
            ("member", self.member, template),
            ("value", self.value, compile_expression),
            ("score", self.score, compile_expression),
        ):
            try:
                if text is not None:
                    read(text)
            except ValueError as ex:
                raise ValueError(f"option {name!r}: {ex}") from ex

    def _check_expire(self) -> None:
        if self.expire is None:
            return
        if self.kind == RedisKind.PUBSUB.value:
            raise ValueError("option 'expire' is for keys, and kind: pubsub has none")
        if self.expire != WINDOW and flush_us(self.expire) < 1_000:
            raise ValueError("option 'expire' must be at least 1ms, or window")

    def _check_parts(self) -> None:
        kind = RedisKind(self.kind)
        if kind is RedisKind.SORTED_SET and (self.member is None or self.score is None):
            raise ValueError(
                "option 'kind' is sorted_set, which needs the options 'member' (what is in the set) and 'score' (its "
                'number); write member: "{player}", score: points'
            )
        owners = {"member": RedisKind.SORTED_SET, "score": RedisKind.SORTED_SET, "fields": RedisKind.HASH}
        for name, owner in owners.items():
            if getattr(self, name) and kind is not owner:
                raise ValueError(f"option {name!r} is for kind: {owner.value}, and this is kind: {self.kind}")
        if self.value is not None and kind not in (RedisKind.STRING, RedisKind.PUBSUB):
            raise ValueError(f"option 'value' is for the kinds string and pubsub, and this is kind: {self.kind}")
