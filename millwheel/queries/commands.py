"""The commands of the Redis protocol that a worker understands. A session is one connection. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, islice

import msgspec

from millwheel.core.slices.slots import slot_of
from millwheel.queries import resp
from millwheel.queries.asked import Elsewhere, Found
from millwheel.queries.cluster import ClusterMap, node_id
from millwheel.queries.model import Answer, Consistency, Query, QueryError
from millwheel.queries.names import Catalog, QueryPlan
from millwheel.queries.peers.health import ErrorShare, Health
from millwheel.queries.rendering import get_reply, hash_reply, json_reply

MAX_KEYS = 10_000
"""An MGET or EXISTS asks for so many names at most; ask again for more."""
_RETRY = {"unavailable": "TRYAGAIN"}
_ids = count(1)


@dataclass(frozen=True, slots=True)
class Pending:
    """A reply that needs answers first."""

    queries: Sequence[Query]
    reply: Callable[[Sequence[Found]], bytes | Gather]


@dataclass(frozen=True, slots=True)
class AskedElsewhere:
    """A question for another worker. ``standby`` is the address of whoever may answer for it, "" for nobody."""

    query: Query
    owner: str
    standby: str = ""

    def others(self) -> Sequence[str]:
        """Who else may answer."""
        return (self.standby,) if self.standby else ()


@dataclass(frozen=True, slots=True)
class Gather:
    """A reply that needs answers of other workers, too."""

    questions: Sequence[AskedElsewhere]
    reply: Callable[[Sequence[Answer | QueryError]], bytes]


Reply = bytes | Pending


@dataclass(frozen=True, slots=True)
class QueryService:
    """What all connections of a worker share. ``password`` is the pipeline's token; "" lets everybody in."""

    catalog: Catalog
    cluster: ClusterMap
    now_us: Callable[[], int]
    password: str = ""
    errors: ErrorShare = field(default_factory=ErrorShare)
    health: Callable[[], Health] = Health


@dataclass(frozen=True, slots=True)
class _Form:
    """How the answers to ``names`` become a reply: by their ``plans``, then ``write``."""

    names: Sequence[bytes]
    plans: Sequence[QueryPlan]
    write: Callable[[Sequence[Answer]], bytes]
    follows: bool = True
    """Whether the connection says which state is asked."""

    def reply(self, found: Sequence[Found]) -> bytes:
        """The reply to all questions of the plans in order, which are answered. An error where a formula has no
        value."""
        answers = [each for each in found if isinstance(each, Answer)]
        if len(self.plans) == len(answers) and all(plan.formula is None for plan in self.plans):
            return self.write(answers)
        start, made = 0, []
        try:
            for plan in self.plans:
                made.append(plan.answer(answers[start : start + len(plan.questions)]))
                start += len(plan.questions)
        except QueryError as ex:
            return error_reply(ex)
        return self.write(made)

    def firsts(self, found: Sequence[Found]) -> list[Found]:
        """What became of the first question of each plan."""
        starts = accumulate((len(plan.questions) for plan in self.plans), initial=0)
        return [found[start] for start in islice(starts, len(self.plans))]


class Session:
    """One connection: whether it may ask, and which version of the protocol it speaks."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._admitted = not service.password
        self._id = next(_ids)
        self.protocol = 2
        self.over = False
        self._consistency = Consistency.DURABLE

    def execute(self, words: Sequence[bytes]) -> Reply:
        """The reply to a command. Never raises."""
        name = words[0].upper()
        command = _COMMANDS.get(name)
        if command is None:
            return resp.error(f"unknown command {words[0][:40].decode(errors='replace')!r}; this server only answers")
        if not self._admitted and name not in _OPEN:
            return resp.error("Authentication required: AUTH with the token of the pipeline.", "NOAUTH")
        if len(words) < command.least:
            return resp.error(f"wrong number of arguments for {name.decode().lower()!r} command")
        try:
            return command.run(self, words)
        except QueryError as ex:
            return error_reply(ex)

    # --- answers

    def get(self, words: Sequence[bytes]) -> Reply:
        """The value."""
        return self._one(words[1], lambda answer: get_reply(answer, self.protocol))

    def hgetall(self, words: Sequence[bytes]) -> Reply:
        """The values, and which span they are of."""
        return self._one(words[1], lambda answer: hash_reply(answer, self.protocol))

    def mget(self, words: Sequence[bytes]) -> Reply:
        """Values of many names."""
        names = words[1:]
        if len(names) > MAX_KEYS:
            raise QueryError("too_much", f"one command asks for {MAX_KEYS} names at most, this one for {len(names)}")
        plans = [self._service.catalog.plan(name) for name in names]
        form = _Form(names, plans, lambda answers: resp.array([get_reply(each, self.protocol) for each in answers]))
        return self._pending(form)

    def query(self, words: Sequence[bytes]) -> Reply:
        """Everything about an answer, as JSON. The indicator may be a formula."""
        options = {"consistency": self._consistency.value, **_options(words[3:])}
        texts = [word.decode(errors="replace") for word in words[1:3]]
        plan = self._service.catalog.planned(texts[0], texts[1], options)
        return self._pending(_Form([words[2]], [plan], lambda answers: json_reply(answers[0]), follows=False))

    def indicators(self, words: Sequence[bytes]) -> Reply:
        """What can be asked, as JSON."""
        return resp.bulk(msgspec.json.encode(self._service.catalog.document()))

    def exists(self, words: Sequence[bytes]) -> Reply:
        """How many of the names can be asked for."""
        found = 0
        for name in words[1 : MAX_KEYS + 1]:
            try:
                self._service.catalog.plan(name)
                found += 1
            except QueryError:
                continue
        return resp.number(found)

    def type(self, words: Sequence[bytes]) -> Reply:
        """Names that can be asked for are hashes."""
        try:
            self._service.catalog.plan(words[1])
        except QueryError:
            return resp.simple("none")
        return resp.simple("hash")

    def _one(self, name: bytes, form: Callable[[Answer], bytes]) -> Reply:
        plan = self._service.catalog.plan(name)
        return self._pending(_Form([name], [plan], lambda answers: form(answers[0])))

    def _pending(self, form: _Form) -> Pending:
        now_us = self._service.now_us()  # one for all: a formula asks for one span
        queries = [
            query if query.until_us is not None or query.window_us is None else replace(query, until_us=now_us)
            for plan in form.plans
            for query in plan.questions
        ]
        if self._consistency is Consistency.STANDBY and form.follows:
            queries = [replace(query, consistency=Consistency.STANDBY) for query in queries]
        return Pending(queries, lambda found: self._reply(form, queries, found))

    def _reply(self, form: _Form, queries: Sequence[Query], found: Sequence[Found]) -> bytes | Gather:
        errors = self._service.errors
        if all(isinstance(each, Answer) for each in found):
            errors.replied()
            return form.reply(found)
        failure = next((each for each in found if isinstance(each, QueryError)), None)
        errors.replied(failure is not None and failure.failed)
        if failure is not None:
            return error_reply(failure)
        firsts = form.firsts(found)
        if any(isinstance(each, Elsewhere) for each in firsts):
            return self._refusal(form.names, firsts)
        return self._gather(form, queries, found)

    def _gather(self, form: _Form, queries: Sequence[Query], found: Sequence[Found]) -> bytes | Gather:
        """Whoever has the first computation of a formula asks the others for theirs."""
        addresses = self._service.cluster.addresses
        others = {
            index: _asked_elsewhere(queries[index], each, addresses)
            for index, each in enumerate(found)
            if isinstance(each, Elsewhere)
        }
        if not all(each.owner for each in others.values()):
            return _UNKNOWN

        def reply(answers: Sequence[Answer | QueryError]) -> bytes:
            whole = list(found)
            for index, answer in zip(others, answers, strict=True):
                if isinstance(answer, QueryError):
                    return error_reply(answer)
                whole[index] = answer
            return form.reply(whole)

        return Gather(list(others.values()), reply)

    def _refusal(self, names: Sequence[bytes], found: Sequence[Found]) -> bytes:
        """Where the names are that are not here."""
        owners = {each.owner if isinstance(each, Elsewhere) else "" for each in found}
        if len(owners) > 1:
            return resp.error("the keys are with more than one worker: ask by slots, or one by one", "CROSSSLOT")
        moved = found[0]
        address = self._service.cluster.addresses.get(moved.owner) if isinstance(moved, Elsewhere) else None
        if address is None:
            return _UNKNOWN
        kind = "ASK" if isinstance(moved, Elsewhere) and moved.for_now else "MOVED"
        return f"-{kind} {slot_of(names[0])} {address}\r\n".encode()

    # --- the connection

    def ping(self, words: Sequence[bytes]) -> Reply:
        """Whether somebody is there."""
        return resp.bulk(words[1]) if len(words) > 1 else resp.simple("PONG")

    def hello(self, words: Sequence[bytes]) -> Reply:
        """Choose the version of the protocol, perhaps with AUTH."""
        if len(words) > 1 and words[1] not in (b"2", b"3"):
            return resp.error("unsupported protocol version", "NOPROTO")
        rest = [word.upper() if index % 3 == 0 else word for index, word in enumerate(words[2:])]
        if rest[:1] == [b"AUTH"] and len(rest) >= 3 and not self._admit(rest[2]):
            return _WRONG
        if not self._admitted:
            return resp.error("HELLO must be called with AUTH: this pipeline wants its token", "NOAUTH")
        self.protocol = int(words[1]) if len(words) > 1 else self.protocol
        about = {
            "server": resp.bulk(b"redis"),
            "version": resp.bulk(b"7.0.0"),
            "proto": resp.number(self.protocol),
            "id": resp.number(self._id),
            "mode": resp.bulk(b"cluster"),
            "role": resp.bulk(b"master"),
            "modules": resp.array([]),
        }
        return resp.mapping(about, self.protocol)

    def auth(self, words: Sequence[bytes]) -> Reply:
        """Show the token."""
        if not self._service.password:
            return resp.error("AUTH is not needed: this pipeline has no token")
        return resp.OK if self._admit(words[-1]) else _WRONG

    def _admit(self, shown: bytes) -> bool:
        password = self._service.password.encode()
        self._admitted = not password or hmac.compare_digest(shown, password)
        return self._admitted

    def client(self, words: Sequence[bytes]) -> Reply:
        """What clients say of themselves is not kept."""
        match words[1].upper():
            case b"ID":
                return resp.number(self._id)
            case b"GETNAME":
                return resp.bulk(b"")
            case b"LIST" | b"INFO":
                return resp.bulk(b"id=%d\n" % self._id)
            case _:
                return resp.OK

    def info(self, words: Sequence[bytes]) -> Reply:
        """What clients look for, and how well this worker is."""
        return resp.bulk(
            b"# Server\r\nredis_version:7.0.0\r\nredis_mode:cluster\r\nserver_name:millwheel\r\n"
            b"# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:1\r\n" + self._service.health().section()
        )

    def config(self, words: Sequence[bytes]) -> Reply:
        """There is nothing to configure here."""
        return resp.array([])

    def command(self, words: Sequence[bytes]) -> Reply:
        """The commands, and where their names are."""
        match words[1].upper() if len(words) > 1 else b"":
            case b"COUNT":
                return resp.number(len(_COMMANDS))
            case b"DOCS":
                return resp.array([])
            case _:
                return resp.array([_about(name, each) for name, each in _COMMANDS.items()])

    def cluster(self, words: Sequence[bytes]) -> Reply:
        """Who has which slots."""
        cluster = self._service.cluster
        match words[1].upper():
            case b"SLOTS":
                return cluster.slots_reply()
            case b"SHARDS":
                return cluster.shards_reply(self.protocol)
            case b"NODES":
                return cluster.nodes_reply()
            case b"INFO":
                return cluster.info_reply()
            case b"KEYSLOT" if len(words) == 3:
                return resp.number(slot_of(words[2]))
            case b"MYID":
                return resp.bulk(node_id(cluster.me).encode())
            case _:
                return resp.error("CLUSTER answers SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT name")

    def readonly(self, words: Sequence[bytes]) -> Reply:
        """From now on, what a standby knows is good enough."""
        self._consistency = Consistency.STANDBY
        return resp.OK

    def readwrite(self, words: Sequence[bytes]) -> Reply:
        """Only owners answer again."""
        self._consistency = Consistency.DURABLE
        return resp.OK

    def fine(self, words: Sequence[bytes]) -> Reply:
        """What needs nothing done."""
        return resp.OK

    def quit(self, words: Sequence[bytes]) -> Reply:
        """The last command of a connection."""
        self.over = True
        return resp.OK


def _asked_elsewhere(query: Query, found: Elsewhere, addresses: Mapping[str, str]) -> AskedElsewhere:
    """Whom to ask; owner "" when that is not known."""
    owner = addresses.get(found.owner, "")
    stale = query.consistency in (Consistency.STANDBY, Consistency.SNAPSHOT)
    standby = addresses.get(found.standby, "") if stale else ""
    return AskedElsewhere(query, owner or standby, standby)


_UNKNOWN = resp.error("the key's worker is not known yet; ask again", "TRYAGAIN")
_WRONG = resp.error("invalid username-password pair: the password is the token of the pipeline", "WRONGPASS")


def error_reply(ex: QueryError) -> bytes:
    """An error of the protocol: its code, and a sentence."""
    kind = _RETRY.get(ex.code)
    return resp.error(ex.sentence, kind) if kind else resp.error(f"{ex.code}: {ex.sentence}")


def _options(words: Sequence[bytes]) -> Mapping[str, str]:
    texts = [word.decode(errors="replace") for word in words]
    names = [text.lower() for text in texts[::2]]
    if len(texts) % 2 or not set(names) <= {"window", "until", "mode", "consistency"}:
        sentence = "MW.QUERY indicator key [WINDOW 3h] [UNTIL µs] [MODE covering] [CONSISTENCY durable]"
        raise QueryError("bad_window", f"write {sentence}")
    return dict(zip(names, texts[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class _Command:
    """``least`` words, its own name counted; the positions of its names."""

    run: Callable[[Session, Sequence[bytes]], Reply]
    least: int = 1
    keys: tuple[int, int, int] = (0, 0, 0)


def _about(name: bytes, command: _Command) -> bytes:
    first, last, step = command.keys
    flags = resp.array([resp.simple("readonly"), resp.simple("fast")])
    positions = [resp.number(each) for each in (first, last, step)]
    exact = command.least if name in (b"GET", b"HGETALL", b"TYPE") else -command.least
    more = [resp.array([])] * 4  # categories, tips, positions of keys again, subcommands: clients want them to be there
    return resp.array([resp.bulk(name.lower()), resp.number(exact), flags, *positions, *more])


_ONE, _ALL = (1, 1, 1), (1, -1, 1)
_OPEN = frozenset({b"AUTH", b"HELLO", b"QUIT", b"PING", b"COMMAND"})
_COMMANDS: Mapping[bytes, _Command] = {
    b"GET": _Command(Session.get, 2, _ONE),
    b"MGET": _Command(Session.mget, 2, _ALL),
    b"HGETALL": _Command(Session.hgetall, 2, _ONE),
    b"MW.QUERY": _Command(Session.query, 3, (2, 2, 1)),
    b"EXISTS": _Command(Session.exists, 2, _ALL),
    b"TYPE": _Command(Session.type, 2, _ONE),
    b"MW.INDICATORS": _Command(Session.indicators),
    b"PING": _Command(Session.ping),
    b"HELLO": _Command(Session.hello),
    b"AUTH": _Command(Session.auth, 2),
    b"CLIENT": _Command(Session.client, 2),
    b"INFO": _Command(Session.info),
    b"CONFIG": _Command(Session.config, 2),
    b"COMMAND": _Command(Session.command),
    b"CLUSTER": _Command(Session.cluster, 2),
    b"READONLY": _Command(Session.readonly),
    b"READWRITE": _Command(Session.readwrite),
    b"ASKING": _Command(Session.fine),
    b"SELECT": _Command(Session.fine, 2),
    b"QUIT": _Command(Session.quit),
}
