"""Draws what is pushed to a pipeline: records out of order, copies, late ones, some of the far
future, broken ones; and between them the moves of watermark and clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.search.generate.orders import order, theme
from tests.search.questions import SECOND, START
from tests.search.script import PARTITION, Action, Clock, Finish, Push, Watermark

if TYPE_CHECKING:
    from tests.search.generate.draft import Draft

NOW = START + 200 * SECOND
"""What the clock shows at first, where it matters: ahead of all event times but those of the far
future."""
LAST_CLOCK = 60 * SECOND
_EDGES = (-1, 0, 0, 1, 500_000)


class _Tide:
    """Where event time stands while a script is drawn."""

    def __init__(self, draft: Draft, now: int | None) -> None:
        self.draft = draft
        self.now = now or 0
        self.judged = now is not None
        self.at = START
        self.marks: dict[tuple[str, str], int] = {}
        self.made = 0
        self.past: list[tuple[str, dict[str, Any]]] = []
        self.disorder = draft.chance(0.08, "disorder")
        self.theme = theme(draft)
        self.clocks = self.theme == "wall_clock" or draft.chance(0.08, "many_clocks")
        self.few_times = not self.disorder and draft.chance(0.06, "few_times")


def draw(draft: Draft, now: int | None) -> list[Action]:
    """The script of a case."""
    rng, tide = draft.rng, _Tide(draft, now)
    streams = list(draft.tree["streams"])
    partitions = [PARTITION] if rng.random() < 0.7 else [PARTITION, "other"]
    script: list[Action] = []
    for _ in range(rng.randint(3, 14)):
        roll = rng.random()
        if roll < 0.62:
            stream = rng.choice(streams)
            count = rng.choice([1, 1, 2, 3, 5])
            records = [record for _ in range(count) for record in _records(tide, stream)]
            script.append(Push(stream, tuple(records), rng.choice(partitions)))
            if tide.clocks:
                tide.now += rng.choice([1, 4, 7]) * SECOND
                script.append(Clock(tide.now))
        elif roll < 0.85 and draft.stated:
            script += _moved(tide, streams, partitions)
        else:
            tide.now += rng.choice([1, 4, 6, 30]) * SECOND + rng.choice([0, 1])
            script.append(Clock(tide.now))
        if rng.random() < (0.15 if tide.disorder or tide.few_times else 0.7):
            tide.at += rng.choice([10, 30] if tide.few_times else [0, 1, 5, 10, 30]) * SECOND
    if rng.random() < 0.9:
        # What waits for the clock fires before the end. At the end it fires as well, at a watermark
        # that is on its way.
        script += [Clock(tide.now + LAST_CLOCK), Finish()]
    return script


def _moved(tide: _Tide, streams: list[str], partitions: list[str]) -> list[Action]:
    rng = tide.draft.rng
    stream = rng.choice([None, None, *streams])
    t = tide.at - (30 if tide.disorder else rng.choice([0, 0, 5, 20])) * SECOND + rng.choice([0, 1])
    chosen = streams if stream is None else [stream]
    partition = None if rng.random() < 0.8 else rng.choice(partitions)
    if partition is not None and stream is None:
        stream = rng.choice(streams)
        chosen = [stream]
    indexes = [
        (name, part)
        for name in chosen
        for part in ([partition] if partition else ["pushed", "other"])
    ]
    if any(tide.marks.get(index, 0) > t for index in indexes):
        return []
    tide.marks.update(dict.fromkeys(indexes, t))
    return [Watermark(t, stream, partition)]


def _records(tide: _Tide, stream: str) -> list[dict[str, Any]]:
    """One record, and sometimes a copy of it."""
    draft, rng = tide.draft, tide.draft.rng
    if tide.past and draft.chance(0.06, "copies"):
        found = [record for name, record in tide.past if name == stream]
        if found:
            return [dict(rng.choice(found))]
    tide.made += 1
    after = (
        range(-24, 25, 3)
        if tide.disorder
        else (0, 0, 1)
        if tide.few_times
        else (0, 0, 1, 2, 3, 7, 10, -3, -8)
    )
    at = tide.at + rng.choice(after) * SECOND
    if rng.random() < (0 if tide.few_times else 0.3):
        at = at - at % (10 * SECOND) + rng.choice(_EDGES)
    if draft.chance(0.08, "late"):
        at -= rng.choice([15, 40, 90]) * SECOND
    if tide.judged and draft.chance(0.04, "far_future"):
        at = tide.now + rng.choice([2, 10, 100_000]) * 60 * SECOND
    record = {
        "at": at,
        "k": rng.choice("aab"),
        "u": rng.randrange(2),
        "n": rng.randint(1, 7),
        "id": f"i{tide.made}",
    }
    if draft.chance(0.06, "broken"):
        _break(record, rng, "missing_field" in draft.features)
    if "timers" in draft.features and rng.random() < (0.9 if tide.theme else 0.6):
        record["do"] = [order(rng, tide.theme) for _ in range(rng.choice([1, 1, 2, 3]))]
    elif draft.chance(0.03, "poison"):
        record["do"] = [["raise"]]
    options = draft.tree["streams"][stream]
    if options["timestamp"]["unit"] == "ms" and type(record.get("at")) is int:
        record["at"] //= 1000
    tide.past.append((stream, record))
    made = [record]
    if draft.chance(0.05, "copies"):
        made.append(dict(record))
    return made


def _break(record: dict[str, Any], rng: Any, without_n: bool) -> None:
    how = rng.choice(["no at", "no k", "no n", "text n", "null k", "text at", "key fails"])
    how = "no n" if without_n and rng.random() < 0.7 else how
    word = how.split()[-1]
    if how.startswith("no "):
        del record[word]
    elif how == "key fails":
        record["k"] = "bad"
    else:
        record[word] = None if how.startswith("null") else "many"
