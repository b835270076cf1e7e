"""A class that records are decoded into."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, omit_defaults=True):
    """A record of the sweep whose ``v`` is a float."""

    k: str
    t: int
    v: float
    n: int = 0
    p: str | None = None
