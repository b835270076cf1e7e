"""What becomes of questions to workers, with workers that say what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from millwheel.engine.queries.health import Health
from millwheel.engine.queries.link import LinkClosed
from millwheel.engine.queries.model import Consistency, Mode, Query, QueryError
from millwheel.engine.queries.peer_client import Asking, HealthWatch, Workers, command_of, error_of

Told = Callable[[bytes], Any]


class Refusal(Exception):
    """A reply that is an error."""


class FakeLinks:
    """Workers by address: each a function from a command to its reply."""

    def __init__(self, **workers: Told) -> None:
        self.workers = workers
        self.calls: list[str] = []

    async def call(self, address: str, commands: Sequence[bytes]) -> list[Any]:
        self.calls.append(address)
        if address not in self.workers:
            raise LinkClosed(f"{address} cannot be reached")
        replies = [self.workers[address](each) for each in commands]
        if None in replies:
            await asyncio.sleep(60)
        return replies


def asked(links: FakeLinks, *asking: Asking, deadline_s: float = 1.0) -> list[Any]:
    workers = Workers(links)  # type: ignore[arg-type]
    asyncio.run(workers.ask(asking, deadline_s))
    return [each.reply for each in asking]


def says(text: str) -> Told:
    return lambda command: Refusal(text) if " " in text else text.encode()


def in_turn(*texts: str) -> Told:
    left = list(texts)
    return lambda command: says(left.pop(0) if len(left) > 1 else left[0])(command)


def test_questions_to_one_worker_are_one_call() -> None:
    links = FakeLinks(a=says("1"), b=says("2"))
    assert asked(links, Asking(b"x", "a"), Asking(b"y", "b"), Asking(b"z", "a")) == [
        b"1",
        b"2",
        b"1",
    ]
    assert sorted(links.calls) == ["a", "b"]


def test_moved_and_ask_are_followed_and_try_again_is_tried_again() -> None:
    links = FakeLinks(
        a=says("MOVED 12 b"),
        b=in_turn("ASK 12 c", "2"),
        c=in_turn("TRYAGAIN soon", "TRYAGAIN soon", "3"),
    )
    assert asked(links, Asking(b"x", "a")) == [b"3"]
    assert links.calls == ["a", "b", "c", "c", "c"]


def test_errors_of_the_protocol_are_errors_with_their_code() -> None:
    (error,) = asked(FakeLinks(a=says("ERR beyond_keep: too old: by far")), Asking(b"x", "a"))
    assert isinstance(error, QueryError)
    assert (error.code, error.sentence) == ("beyond_keep", "too old: by far")
    assert error_of("ERR unknown command").code == "unavailable"
    assert error_of("CROSSSLOT the keys: are apart").sentence == "CROSSSLOT the keys: are apart"


def test_a_dead_owner_is_asked_again_until_the_deadline_says_why_not() -> None:
    (error,) = asked(FakeLinks(), Asking(b"x", "a"), deadline_s=0.05)
    assert isinstance(error, QueryError)
    assert error.code == "unavailable"
    assert "a cannot be reached" in error.sentence
    (nobody,) = asked(FakeLinks(), Asking(b"x", ""), deadline_s=0.02)
    assert "no worker has the key" in str(nobody)


def test_a_question_follows_the_tables_while_it_waits() -> None:
    """A gateway that has just started knows no worker yet, and an owner that died has a
    successor."""
    for known in (["", "", "b"], ["a", "a", "b"]):
        owners = iter(known)
        question = Asking(b"x", "", owner=lambda owners=owners: next(owners, "b"))
        assert asked(FakeLinks(b=says("1")), question) == [b"1"]


def test_a_redirection_is_followed_beyond_tables_that_lag() -> None:
    links = FakeLinks(a=says("MOVED 7 b"), b=in_turn("TRYAGAIN soon", "TRYAGAIN soon", "1"))
    assert asked(links, Asking(b"x", "", owner=lambda: "a")) == [b"1"]
    assert links.calls == ["a", "b", "b", "b"]


def test_others_answer_for_an_owner_that_is_dead_or_silent_and_then_at_once() -> None:
    for owner in (None, lambda command: None):
        links = FakeLinks(b=lambda command: b"late" if command == b"stale" else b"?")
        if owner is not None:
            links.workers["a"] = owner
        first, second = (Asking(b"x", "a", lambda: ("a", "b"), stale=b"stale") for _ in range(2))
        workers = Workers(links)  # type: ignore[arg-type]

        async def run(
            workers: Workers = workers, first: Asking = first, second: Asking = second
        ) -> None:
            await workers.ask([first], 0.4)
            await workers.ask([second], 0.4)

        asyncio.run(run())
        assert (first.reply, second.reply) == (b"late", b"late")
        assert links.calls == ["a", "b", "b"]


def test_others_answer_at_once_for_whoever_cannot_yet() -> None:
    links = FakeLinks(
        a=says("TRYAGAIN soon"), b=lambda command: b"late" if command == b"stale" else b"?"
    )
    assert asked(links, Asking(b"x", "a", lambda: ("b",), stale=b"stale")) == [b"late"]
    assert links.calls == ["a", "b"]
    links = FakeLinks(a=in_turn("TRYAGAIN soon", "2"), b=says("TRYAGAIN not here"))
    assert asked(links, Asking(b"x", "a", lambda: ("b",), stale=b"stale")) == [b"2"]
    assert links.calls == ["a", "b", "a"]


def test_a_silent_worker_is_looked_for_by_one_question_while_the_others_go_on() -> None:
    links = FakeLinks(a=lambda command: None, b=says("late"))
    workers = Workers(links, {"a": 0.0})  # type: ignore[arg-type]
    first, second = (Asking(b"x", "a", lambda: ("b",), stale=b"stale") for _ in range(2))

    async def run() -> None:
        looking = asyncio.ensure_future(workers.ask([first], 0.4))
        await asyncio.sleep(0.01)
        await workers.ask([second], 0.4)
        assert links.calls == ["a", "b"]
        await looking

    asyncio.run(run())
    assert (first.reply, second.reply) == (b"late", b"late")


def test_anybody_is_asked_only_for_who_is_dead_or_not_near_to_answering() -> None:
    stale: Told = lambda command: b"late" if command == b"stale" else b"?"  # noqa: E731
    links = FakeLinks(b=stale)
    assert asked(links, Asking(b"x", "a", snapshot_readers=lambda: ("b",), stale=b"stale")) == [
        b"late"
    ]
    assert links.calls == ["a", "b"]
    links = FakeLinks(a=in_turn("TRYAGAIN soon", "TRYAGAIN soon", "1"), b=stale)
    assert asked(links, Asking(b"x", "a", snapshot_readers=lambda: ("b",), stale=b"stale")) == [
        b"1"
    ]
    links = FakeLinks(a=says("TRYAGAIN soon"), b=stale)
    assert asked(links, Asking(b"x", "a", snapshot_readers=lambda: ("b",), stale=b"stale")) == [
        b"late"
    ]
    assert links.calls == ["a", "a", "a", "b"]


def test_what_takes_long_everywhere_is_asked_once_and_waited_for() -> None:
    class SlowLinks(FakeLinks):
        async def call(self, address: str, commands: Sequence[bytes]) -> list[Any]:
            replies = await super().call(address, commands)
            await asyncio.sleep(0.3)
            return replies

    links = SlowLinks(a=says("1"), b=says("TRYAGAIN not here"))
    assert asked(links, Asking(b"x", "a", lambda: ("b",), stale=b"stale")) == [b"1"]
    assert links.calls.count("a") == 1


def test_a_question_is_a_command() -> None:
    query = Query("clicks.n", 42, 3_600_000_000, 17, Mode.INSIDE, Consistency.LATEST)
    words = command_of(query, "42", {"CONSISTENCY": "standby"}).split(b"\r\n")[2::2]
    assert (
        words
        == b"MW.QUERY clicks.n 42 MODE inside CONSISTENCY standby "
        b"WINDOW 3600000000us UNTIL 17".split()
    )


class PolledLinks:
    """Workers with a health, and those that are not there."""

    def __init__(self, **health: Health) -> None:
        self.health = health

    async def call(self, address: str, commands: Sequence[bytes]) -> list[Any]:
        if address not in self.health:
            raise LinkClosed("it is away")
        return [
            self.health[address].section() if b"INFO" in each else address.encode()
            for each in commands
        ]


def test_a_worker_that_is_not_well_is_asked_only_where_nobody_else_could_answer() -> None:
    links = PolledLinks(a=Health(lag_s=9.0), b=Health())
    workers = Workers(links)  # type: ignore[arg-type]
    watch = HealthWatch(workers, lambda: frozenset({"a", "b", "gone"}))

    async def ask() -> list[Any]:
        asked = [Asking(b"x", "a", lambda: ("b",)), Asking(b"x", "a"), Asking(b"x", "b")]
        await workers.ask(asked, 1.0)
        return [each.reply for each in asked]

    async def run() -> None:
        assert await ask() == [b"a", b"a", b"b"]
        await watch.look()
        assert await ask() == [b"b", b"a", b"b"]
        assert set(workers.suspects) == {"gone"}
        links.health["a"] = Health()
        await watch.look()
        assert await ask() == [b"a", b"a", b"b"]

    asyncio.run(run())


def test_a_worker_that_is_gone_is_forgotten() -> None:
    links = PolledLinks(a=Health(disk=1.0))
    workers = Workers(links)  # type: ignore[arg-type]
    there = {"a"}
    watch = HealthWatch(workers, lambda: frozenset(there))
    asyncio.run(watch.look())
    assert set(workers.poor) == {"a"}
    there.clear()
    asyncio.run(watch.look())
    assert not workers.poor
