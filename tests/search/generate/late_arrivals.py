"""Brings records back to windows that have fired and are still kept, with a random generator of
its own: the watermark goes past what a script has so far, by less than most kinds of allowed
lateness, and then come records of the times before."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.search.generate.draft import Draft
from tests.search.questions import SECOND
from tests.search.script import PARTITION, Action, Clock, Finish, Push, Watermark

FEATURE = "fired_windows"
_SHARE = 0.3  # of the cases with allowed lateness, the only ones in which it means much
_AHEAD = (12, 16, 24)  # s; windows are 10 s long, allowed lateness is 5, 20 or 60 s
_BEHIND = 40  # s, at most
_RECORDS = 6
_ROUNDS = 2


def with_late_arrivals(
    draft: Draft, seed: int, script: Sequence[Action], now: int | None
) -> list[Action]:
    """The script, sometimes with late records before its end. Without a ``now`` nothing lies too
    far in the future."""
    rng = Random(f"late arrivals {seed}")
    asked = FEATURE in draft.wanted
    if not asked and ("lateness" not in draft.features or rng.random() >= _SHARE):
        return list(script)
    streams = _times(draft, script, now)
    if not streams:
        return list(script)
    draft.features.add(FEATURE)
    last = next(
        (at for at, each in enumerate(script) if isinstance(each, Finish)),
        len(script),
    )
    last -= last > 0 and isinstance(script[last - 1], Clock)
    made = list(script[:last])
    stated = [each.t for each in script if isinstance(each, Watermark)]
    for number in range(_ROUNDS):
        newest = max([*stated, *(at for _, at in streams.values())])
        newest += rng.choice(_AHEAD) * SECOND
        for stream, (scale, _) in streams.items():
            first = _record(rng, newest // scale, f"{stream}{number}")
            made += [Push(stream, (first,), each) for each in _partitions(script, stream)]
            streams[stream] = (scale, newest)
        if draft.stated:
            made.append(Watermark(newest))
        for stream, (scale, _) in streams.items():
            late = [
                _record(
                    rng,
                    (newest - rng.randint(1, _BEHIND) * SECOND) // scale,
                    f"{stream}{number}-{each}",
                )
                for each in range(rng.randint(2, _RECORDS))
            ]
            made.append(Push(stream, tuple(late), PARTITION))
    return made + list(script[last:])


def _record(rng: Random, at: int, name: str) -> dict[str, Any]:
    key, user, value = rng.choice("aab"), rng.randrange(2), rng.randint(1, 7)
    return {"at": at, "k": key, "u": user, "n": value, "id": f"late {name}"}


def _partitions(script: Sequence[Action], stream: str) -> list[str]:
    """All that hold the watermark of a stream."""
    pushes = [each for each in script if isinstance(each, Push) and each.stream == stream]
    return sorted({each.partition for each in pushes})


def _times(draft: Draft, script: Sequence[Action], now: int | None) -> dict[str, tuple[int, int]]:
    """How many µs the unit of each stream has, and its newest time in µs."""
    found: dict[str, tuple[int, int]] = {}
    for name, options in draft.tree["streams"].items():
        scale = 1000 if options["timestamp"]["unit"] == "ms" else 1
        times = [
            record["at"] * scale
            for each in script
            if isinstance(each, Push) and each.stream == name
            for record in each.values
            if type(record.get("at")) is int
        ]
        near = [at for at in times if now is None or at <= now]
        if near:
            found[name] = (scale, max(near))
    return found
