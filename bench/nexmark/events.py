"""Nexmark's events, by the rules of its published generator: of each 50 events one is a person,
three are auctions and 46 are bids; half of the auctions are by hot sellers, half of the bids are
for hot auctions, and three of four by hot bidders; a price is 100 to 100,000,000, all orders of
magnitude alike.

The same arguments give the same bytes. Each kind is dealt to files in turn, so that the events of
each file are in the order of their times, and no file of a kind lies far behind another.
"""

from __future__ import annotations

import random
import shutil
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.paths import cache

KINDS = ("person", "auction", "bid")
TABLES = (*KINDS, "side")
"""What a query may read: the events, and a table beside them."""
_SIDE_ROWS = 10_000  # Fixed: published
_PERSONS, _AUCTIONS, _ROUND = 1, 3, 50  # Fixed: published, events of each kind of so many
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5  # Fixed: published
_ACTIVE_PERSONS, _OPEN_AUCTIONS, _AHEAD = 1_000, 100, 10  # Fixed: published
_HOT = 100  # Fixed: published; one id of so many is hot
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS = 4, 2, 4  # Fixed: published; all but one of so many are
_PER_S, _BEGIN_MS = 10_000, 1_795_392_000_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000  # Fixed: published, besides the hot ones
_PATHS = tuple(f"/{a}/{b}/{c}" for a, b, c in ("abo", "gai", "cox", "dju", "mep"))
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Smith", "Jones")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Seattle",
    "Kent",
)
_BYTES = {"person": 200, "auction": 500, "bid": 100}  # Fixed: published, an event has on average
_encode = msgspec.json.encode


def nexmark(events: int, files: int = 2, seed: int = 7, hot_seller: bool = False) -> Path:
    """The folder with ``person-1.jsonl``, ``auction-1.jsonl``, ``bid-1.jsonl`` and so on, in the
    cache; made once. With a ``hot_seller`` the first person sells every second auction of all,
    which nobody has published."""
    folder = cache() / f"nexmark-{events}-{files}-{seed}{'-hot' if hot_seller else ''}"
    if not folder.exists():
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        write(draft, events, files, seed, hot_seller)
        draft.rename(folder)
    if not any(folder.glob("side-*")):  # made before there was one
        _write_side(folder)
    return folder


def write(folder: Path, events: int, files: int, seed: int, hot_seller: bool = False) -> None:
    """Make the files in an empty folder."""
    folder.mkdir(parents=True)
    opened = {
        kind: [(folder / f"{kind}-{number + 1}.jsonl").open("wb") for number in range(files)]
        for kind in KINDS
    }
    counts = dict.fromkeys(KINDS, 0)
    for kind, event in drawn(events, seed):
        if hot_seller and kind == "auction" and event["id"] % 2 == 0:
            event["seller"] = _FIRST_ID
        opened[kind][counts[kind] % files].write(_encode(event) + b"\n")
        counts[kind] += 1
    for each in opened.values():
        for file in each:
            file.close()
    _write_side(folder)


def _write_side(folder: Path) -> None:
    """The table of bounded input: a value for each remainder of an auction's id."""
    rows = ({"key": key, "value": f"value {key}"} for key in range(_SIDE_ROWS))
    (folder / "side-1.jsonl").write_bytes(b"".join(_encode(row) + b"\n" for row in rows))


def drawn(events: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each event with its kind, in the order of their times (ms)."""
    chance = random.Random(seed)
    for number in range(events):
        time_ms = _BEGIN_MS + number * 1_000 // _PER_S
        rounds, place = divmod(number, _ROUND)
        if place < _PERSONS:
            yield "person", _person(chance, rounds, time_ms)
        elif place < _PERSONS + _AUCTIONS:
            yield "auction", _auction(chance, rounds, place - _PERSONS, time_ms)
        else:
            yield "bid", _bid(chance, rounds, time_ms)


def _person(chance: random.Random, rounds: int, time_ms: int) -> dict[str, Any]:
    first, last = chance.choice(_FIRST_NAMES), chance.choice(_LAST_NAMES)
    event = {
        "id": _FIRST_ID + rounds,
        "name": f"{first} {last}",
        "emailAddress": f"{_text(chance, 7)}@{_text(chance, 5)}.com",
        "creditCard": " ".join(f"{chance.randrange(10_000):04}" for _ in range(4)),
        "city": chance.choice(_CITIES),
        "state": chance.choice(_STATES),
        "dateTime": time_ms,
    }
    return _filled(chance, "person", event)


def _auction(chance: random.Random, rounds: int, place: int, time_ms: int) -> dict[str, Any]:
    price = _price(chance)
    event = {
        "id": _FIRST_ID + rounds * _AUCTIONS + place,
        "itemName": _text(chance, 20),
        "description": _text(chance, 100),
        "initialBid": price,
        "reserve": price + _price(chance),
        "dateTime": time_ms,
        "expires": time_ms + _open_ms(chance),
        "seller": _FIRST_ID + _seller(chance, rounds),
        "category": _FIRST_CATEGORY + chance.randrange(_CATEGORIES),
    }
    return _filled(chance, "auction", event)


def _bid(chance: random.Random, rounds: int, time_ms: int) -> dict[str, Any]:
    last = rounds * _AUCTIONS + _AUCTIONS - 1
    if chance.randrange(_HOT_AUCTIONS):
        auction = last // _HOT * _HOT
    else:
        auction = chance.randint(max(0, last - _OPEN_AUCTIONS), last + _AHEAD)
    if chance.randrange(_HOT_BIDDERS):
        bidder = rounds // _HOT * _HOT + 1
    else:
        bidder = _someone(chance, rounds)
    if chance.randrange(2):
        hot = chance.randrange(len(_HOT_CHANNELS))
        channel, url = _HOT_CHANNELS[hot], _url(hot, "")
    else:
        number = chance.randrange(_CHANNELS)
        channel, url = f"channel-{number}", _url(number, f"&channel_id={number}")
    event = {
        "auction": _FIRST_ID + auction,
        "bidder": _FIRST_ID + bidder,
        "price": _price(chance),
        "channel": channel,
        "url": url,
        "dateTime": time_ms,
    }
    return _filled(chance, "bid", event)


def _seller(chance: random.Random, rounds: int) -> int:
    if chance.randrange(_HOT_SELLERS):
        return rounds // _HOT * _HOT
    return _someone(chance, rounds)


def _someone(chance: random.Random, rounds: int) -> int:
    """An active person, or one that comes soon."""
    return chance.randint(max(0, rounds - _ACTIVE_PERSONS), rounds + _AHEAD)


def _price(chance: random.Random) -> int:
    return round(10 ** (chance.random() * 6) * 100)


def _open_ms(chance: random.Random) -> int:
    """About as long as the open auctions take to come."""
    horizon_ms = _OPEN_AUCTIONS * _ROUND // _AUCTIONS * 1_000 // _PER_S
    return 1 + chance.randrange(max(horizon_ms * 2, 1))


def _url(number: int, more: str) -> str:
    return f"https://www.nexmark.com{_PATHS[number % len(_PATHS)]}/item.htm?query=1{more}"


def _filled(chance: random.Random, kind: str, event: dict[str, Any]) -> dict[str, Any]:
    """With ``extra``, of a length that makes the event about as large as is published."""
    length = sum(len(str(value)) for value in event.values())
    spare = max(_BYTES[kind] - length, 0)
    return {**event, "extra": _text(chance, spare) if spare else ""}


def _text(chance: random.Random, most: int) -> str:
    return "".join(chance.choices(string.ascii_lowercase + " ", k=chance.randint(3, max(most, 3))))
