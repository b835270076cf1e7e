"""Questions as a client writes them, and the HTTP requests made of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

import msgspec

from millwheel.engine.queries.model import QueryError

MOST_ASKS = 10_000
"""The most questions in one request, as a gateway limits them."""
_PLAIN = re.compile(r"[\w.-]+")
_US, _EPOCH = timedelta(microseconds=1), datetime(1970, 1, 1, tzinfo=timezone.utc)
_encode = msgspec.json.Encoder().encode

Window: TypeAlias = "str | int | timedelta | None"
"""A duration: text, µs, or a timedelta; None where no window is needed."""
Instant: TypeAlias = "int | datetime | None"
"""A time: µs UTC, or a datetime with a time zone; None for now."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. ``indicator`` is a computation, one value of it (``clicks.n``), a named query,
    or a formula (``clicks.spend / clicks.n``); ``key`` a number, a text, or a tuple of both.
    ``window`` is a duration (``"3h"``, a timedelta, or µs), and ends at ``until`` (µs UTC, or a
    datetime with a time zone), or else now. ``mode`` is covering, exact or inside, ``consistency``
    durable, latest or standby: docs/queries.md has their rules."""

    indicator: str
    key: object
    window: Window = None
    until: Instant = None
    mode: str = "covering"
    consistency: str = "durable"


def pieces_of(asks: Sequence[Ask | str]) -> Iterator[Sequence[Ask | str]]:
    """The questions of each request."""
    for start in range(0, len(asks), MOST_ASKS):
        yield asks[start : start + MOST_ASKS]


def body_of(asks: Sequence[Ask | str], more: Mapping[str, Any]) -> bytes:
    """The JSON body of a request. Raises QueryError for an invalid key."""
    try:
        return _encode({"queries": [_question(each) for each in asks], **more})
    except TypeError as ex:
        raise QueryError(
            "wrong_key", f"a key is a number, a text, or a tuple of both: {ex}"
        ) from None


def _question(ask: Ask | str) -> Mapping[str, Any]:
    if isinstance(ask, str):
        return {"name": ask}
    question: dict[str, Any] = {
        "indicator" if _PLAIN.fullmatch(ask.indicator) else "formula": ask.indicator
    }
    question |= {"key": ask.key, "mode": ask.mode, "consistency": ask.consistency}
    if ask.window is not None:
        window = ask.window
        question["window"] = window // _US if isinstance(window, timedelta) else window
    if ask.until is not None:
        question["until"] = _instant_us(ask.until) if isinstance(ask.until, datetime) else ask.until
    return question


def _instant_us(at: datetime) -> int:
    if at.tzinfo is None:
        raise QueryError(
            "bad_window", f"until needs a time zone: {at.isoformat()} could be anywhere"
        )
    return (at - _EPOCH) // _US
