"""The options below ``redis:`` of a sink."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from millwheel.connect.connectors.redis.client import check_url
from millwheel.connect.connectors.redis.templates import template
from millwheel.connect.options import Flush, Option
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import flush_us

WINDOW = "window"


class RedisKind(Enum):
    """The form of a row in Redis."""

    STRING = "string"
    HASH = "hash"
    SORTED_SET = "sorted_set"
    PUBSUB = "pubsub"


class RedisSinkOptions(msgspec.Struct, frozen=True):
    """Keys of Redis, or messages of its channels."""

    url: Annotated[
        str,
        Option(
            '"redis://127.0.0.1:6379/0"',
            text=(
                "`redis://`, `rediss://` (TLS) or `unix://`; a password by"
                " `redis://user:${secret:REDIS}@host:6379/0`"
            ),
        ),
    ]
    key: Annotated[
        str,
        Option(
            '"ctr:{ad_id}"',
            text=(
                "the name of the key (for `pubsub`, of the channel), with expressions over"
                ' the row in braces: `"ctr:{ad_id}"`. Write `{{` and `}}` for literal braces.'
                " Values stand there as they are: between two fields choose a separator that"
                " neither can contain"
            ),
        ),
    ]
    kind: Annotated[
        str,
        Option(
            "hash", tuple(kind.value for kind in RedisKind), text="the form of a row, see below"
        ),
    ] = "hash"
    value: Annotated[
        str | None,
        Option(
            "total",
            text=(
                "for `string` and `pubsub`: an expression; text is written unchanged,"
                " anything else as JSON"
            ),
            default="the row",
        ),
    ] = None
    fields: Annotated[
        list[str], Option("[clicks, views]", text="for `hash`: the fields to write", default="all")
    ] = []
    member: Annotated[
        str | None,
        Option(
            '"{player}"',
            text="the member of a `sorted_set`, written like `key`",
            default="required for `sorted_set`",
        ),
    ] = None
    score: Annotated[
        str | None,
        Option(
            "points",
            text="an expression for the score of the member",
            default="required for `sorted_set`",
        ),
    ] = None
    expire: Annotated[
        str | int | None,
        Option(
            "window",
            python="Duration",
            text=(
                "how long a key lives after it was written: a duration, or `window` for the"
                " length of the row's window (`window_end` − `window_start`)"
            ),
            default="never",
        ),
    ] = None
    flush: Flush = "20ms"
    marks: Annotated[
        str,
        Option(
            '"millwheel:"',
            text=(
                "prefix of the keys that record the last batch written: one small hash per"
                " shard of the sink"
            ),
        ),
    ] = "millwheel:"

    def __post_init__(self) -> None:
        check_url(self.url)
        flush_us(self.flush)
        self._check_expire()
        self._check_parts()
        for name, text, read in (
            ("key", self.key, template),
            ("member", self.member, template),
            ("value", self.value, expression_of),
            ("score", self.score, expression_of),
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
                "option 'kind' is sorted_set, which needs the options 'member' (what is in the set)"
                " and 'score' (its number); write member: \"{player}\", score: points"
            )
        owners = {
            "member": RedisKind.SORTED_SET,
            "score": RedisKind.SORTED_SET,
            "fields": RedisKind.HASH,
        }
        for name, owner in owners.items():
            if getattr(self, name) and kind is not owner:
                raise ValueError(
                    f"option {name!r} is for kind: {owner.value}, and this is kind: {self.kind}"
                )
        if self.value is not None and kind not in (RedisKind.STRING, RedisKind.PUBSUB):
            raise ValueError(
                f"option 'value' is for the kinds string and pubsub, and this is kind: {self.kind}"
            )
