"""The commands of the Redis protocol that a worker understands. A session is one connection.
Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec
from msgspec.structs import replace

from millwheel.core.slices.slots import slot_of
from millwheel.engine.queries import resp
from millwheel.engine.queries.cluster import ClusterMap, node_id
from millwheel.engine.queries.health import ErrorShare, Health
from millwheel.engine.queries.model import Answer, Consistency, Found, Query, QueryError
from millwheel.engine.queries.names import Catalog, QueryPlan
from millwheel.engine.queries.replies import (
    Form,
    Formed,
    Gather,
    Pending,
    Replies,
    error_reply,
    get_reply,
    hash_reply,
    json_reply,
)

MAX_KEYS = 10_000
"""The most names in one MGET or EXISTS; ask for more in further commands."""
_ids = count(1)


class _Get(msgspec.Struct):
    """The reply to GET, the most frequent command: it needs no form."""

    queries: Sequence[Query]
    session: Session
    name: bytes
    plan: QueryPlan

    def reply(self, outcomes: Sequence[Found]) -> bytes | Gather:
        return self.session.got(self.name, self.plan, self.queries, outcomes)


Reply = bytes | Pending


@dataclass(frozen=True, slots=True)
class QueryService:
    """The parts that all connections of a worker share. ``admits`` returns whether a password is
    the run's token; None admits every client."""

    catalog: Catalog
    cluster: ClusterMap
    now_us: Callable[[], int]
    admits: Callable[[bytes], bool] | None = None
    errors: ErrorShare = field(default_factory=ErrorShare)
    health: Callable[[], Health] = Health


class Session:
    """One connection: whether it is authenticated (``admitted``), whether it has sent a command of
    this server (``greeted``), and its version of the protocol."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._replies = Replies(service.cluster, service.errors)
        self.admitted = service.admits is None
        self._id = next(_ids)
        self.protocol = 2
        self.over = False
        self.greeted = False
        self._consistency = Consistency.DURABLE

    def execute(self, words: Sequence[bytes]) -> Reply:
        """The reply to a command. Never raises."""
        name = words[0].upper()
        command = _COMMANDS.get(name)
        if command is None:
            return self._unknown(words)
        if not self.admitted and name not in _OPEN:
            return resp.error(
                "Authentication required: AUTH with the token of the pipeline.", "NOAUTH"
            )
        if len(words) < command.least:
            return resp.error(f"wrong number of arguments for {name.decode().lower()!r} command")
        if name == b"GET" and len(words) > 2 and _is_http(words):
            return self._ended(_NO_HTTP)
        self.greeted = True
        try:
            return command.run(self, words)
        except QueryError as ex:
            return error_reply(ex)

    def refuse(self, problem: resp.ProtocolError) -> bytes:
        """The reply to malformed input. Before the first command it is another protocol, whose
        bytes are not searched for commands: the connection ends."""
        reply = resp.error(f"Protocol error: {problem}")
        return reply if self.greeted else self._ended(reply)

    def _unknown(self, words: Sequence[bytes]) -> bytes:
        if _is_http(words):
            return self._ended(_NO_HTTP)
        name = words[0][:40].decode(errors="replace")
        reply = resp.error(f"unknown command {name!r}; this server only answers")
        return (
            self._ended(reply) if isinstance(words, resp.TypedLine) and not self.greeted else reply
        )

    def _ended(self, reply: bytes) -> bytes:
        self.over = True
        return reply

    # --- answers

    def get(self, words: Sequence[bytes]) -> Reply:
        """The value."""
        plan = self._service.catalog.plan(words[1])
        if plan.plain and self._consistency is Consistency.DURABLE:
            return _Get([plan.questions[0].asked_at(self._service.now_us())], self, words[1], plan)
        return self._one(words[1], lambda answer: get_reply(answer, self.protocol))

    def got(
        self, name: bytes, plan: QueryPlan, queries: Sequence[Query], outcomes: Sequence[Found]
    ) -> bytes | Gather:
        """The reply to GET."""
        if type(answer := outcomes[0]) is Answer:
            self._service.errors.replied()
            return get_reply(answer, self.protocol)
        return self._replies.of(
            Form([name], [plan], lambda answers: get_reply(answers[0], self.protocol)),
            queries,
            outcomes,
        )

    def hgetall(self, words: Sequence[bytes]) -> Reply:
        """HGETALL: the values, and the span of event time that they cover."""
        return self._one(words[1], lambda answer: hash_reply(answer, self.protocol))

    def mget(self, words: Sequence[bytes]) -> Reply:
        """Values of many names."""
        names = _names(words)
        plans = [self._service.catalog.plan(name) for name in names]
        form = Form(
            names,
            plans,
            lambda answers: resp.array([get_reply(each, self.protocol) for each in answers]),
        )
        return self._pending(form)

    def query(self, words: Sequence[bytes]) -> Reply:
        """MW.QUERY: an answer with all its attributes, as JSON. The indicator may be a formula."""
        options = {"consistency": self._consistency.value, **_options(words[3:])}
        texts = [word.decode(errors="replace") for word in words[1:3]]
        plan = self._service.catalog.planned(texts[0], texts[1], options)
        return self._pending(
            Form([words[2]], [plan], lambda answers: json_reply(answers[0]), follows=False)
        )

    def indicators(self, words: Sequence[bytes]) -> Reply:
        """MW.INDICATORS: all computations and named queries, as JSON."""
        return resp.bulk(msgspec.json.encode(self._service.catalog.document()))

    def exists(self, words: Sequence[bytes]) -> Reply:
        """EXISTS: how many of the names are valid."""
        return resp.number(sum(map(self._is_valid, _names(words))))

    def type(self, words: Sequence[bytes]) -> Reply:
        """TYPE: ``hash`` for a valid name, else ``none``."""
        return resp.simple("hash" if self._is_valid(words[1]) else "none")

    def _is_valid(self, name: bytes) -> bool:
        try:
            self._service.catalog.plan(name)
        except QueryError:
            return False
        return True

    def _one(self, name: bytes, form: Callable[[Answer], bytes]) -> Reply:
        plan = self._service.catalog.plan(name)
        return self._pending(Form([name], [plan], lambda answers: form(answers[0])))

    def _pending(self, form: Form) -> Pending:
        now_us = self._service.now_us()  # one for all questions: a formula covers one span
        queries = [query.asked_at(now_us) for plan in form.plans for query in plan.questions]
        if self._consistency is Consistency.STANDBY and form.follows:
            queries = [replace(query, consistency=Consistency.STANDBY) for query in queries]
        return Formed(queries, lambda outcomes: self._replies.of(form, queries, outcomes))

    # --- the connection

    def hello(self, words: Sequence[bytes]) -> Reply:
        """HELLO: choose the version of the protocol, optionally with AUTH."""
        if len(words) > 1 and words[1] not in (b"2", b"3"):
            return resp.error("unsupported protocol version", "NOPROTO")
        rest = [word.upper() if index % 3 == 0 else word for index, word in enumerate(words[2:])]
        if rest[:1] == [b"AUTH"] and len(rest) >= 3 and not self._admit(rest[2]):
            return _WRONG
        if not self.admitted:
            return resp.error(
                "HELLO must be called with AUTH: this pipeline requires its token", "NOAUTH"
            )
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
        """AUTH: present the token."""
        if self._service.admits is None:
            return resp.error("AUTH is not needed: this pipeline has no token")
        return resp.OK if self._admit(words[-1]) else _WRONG

    def _admit(self, credential: bytes) -> bool:
        self.admitted = self._service.admits is None or self._service.admits(credential)
        return self.admitted

    def client(self, words: Sequence[bytes]) -> Reply:
        """CLIENT: the names and settings that clients report are accepted and not kept."""
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
        """INFO: the fields that client libraries read, and the health of this worker."""
        return resp.bulk(
            b"# Server\r\nredis_version:7.0.0\r\nredis_mode:cluster\r\nserver_name:millwheel\r\n"
            b"# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:1\r\n"
            + self._service.health().section()
        )

    def cluster(self, words: Sequence[bytes]) -> Reply:
        """CLUSTER: the owners of slots."""
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
                return resp.error(
                    "CLUSTER answers SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT name"
                )

    def readonly(self, words: Sequence[bytes]) -> Reply:
        """READONLY: from now on, standbys may answer."""
        self._consistency = Consistency.STANDBY
        return resp.OK

    def readwrite(self, words: Sequence[bytes]) -> Reply:
        """READWRITE: from now on, only owners answer."""
        self._consistency = Consistency.DURABLE
        return resp.OK

    def quit(self, words: Sequence[bytes]) -> Reply:
        """QUIT: reply, and close the connection."""
        self.over = True
        return resp.OK


def _ping(session: Session, words: Sequence[bytes]) -> Reply:
    """PING."""
    return resp.bulk(words[1]) if len(words) > 1 else resp.simple("PONG")


def _config(session: Session, words: Sequence[bytes]) -> Reply:
    """CONFIG: there is nothing to configure."""
    return resp.array([])


def _command(session: Session, words: Sequence[bytes]) -> Reply:
    """COMMAND: the commands, and the positions of names in them."""
    match words[1].upper() if len(words) > 1 else b"":
        case b"COUNT":
            return resp.number(len(_COMMANDS))
        case b"DOCS":
            return resp.array([])
        case _:
            return resp.array([_about(name, each) for name, each in _COMMANDS.items()])


def _fine(session: Session, words: Sequence[bytes]) -> Reply:
    """Commands without an effect: OK."""
    return resp.OK


def _is_http(words: Sequence[bytes]) -> bool:
    """Whether it is a line of an HTTP request, perhaps from a web page: commands may follow in its
    body."""
    return words[0].upper() in (b"POST", b"HOST:") or _HTTP_VERSION.fullmatch(words[-1]) is not None


_HTTP_VERSION = re.compile(rb"HTTP/[0-9.]{1,8}", re.IGNORECASE)
_NO_HTTP = resp.error(
    "this server answers the Redis protocol, not HTTP; for HTTP, use `millwheel serve`"
)
_WRONG = resp.error(
    "invalid username-password pair: the password is the token of the pipeline", "WRONGPASS"
)


def _names(words: Sequence[bytes]) -> Sequence[bytes]:
    if len(words) > MAX_KEYS + 1:
        raise QueryError(
            "too_much",
            f"one command asks for {MAX_KEYS} names at most, this one for {len(words) - 1}",
        )
    return words[1:]


def _options(words: Sequence[bytes]) -> Mapping[str, str]:
    texts = [word.decode(errors="replace") for word in words]
    names = [text.lower() for text in texts[::2]]
    if len(texts) % 2 or not set(names) <= {"window", "until", "mode", "consistency"}:
        sentence = (
            "MW.QUERY indicator key [WINDOW 3h] [UNTIL µs] [MODE covering] [CONSISTENCY durable]"
        )
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
    # categories, tips, positions of keys, subcommands: clients require them, even empty
    more = [resp.array([])] * 4
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
    b"PING": _Command(_ping),
    b"HELLO": _Command(Session.hello),
    b"AUTH": _Command(Session.auth, 2),
    b"CLIENT": _Command(Session.client, 2),
    b"INFO": _Command(Session.info),
    b"CONFIG": _Command(_config, 2),
    b"COMMAND": _Command(_command),
    b"CLUSTER": _Command(Session.cluster, 2),
    b"READONLY": _Command(Session.readonly),
    b"READWRITE": _Command(Session.readwrite),
    b"ASKING": _Command(_fine),
    b"SELECT": _Command(_fine, 2),
    b"QUIT": _Command(Session.quit),
}
