"""A shard as its transcripts command it: tests/transcripts/machines/shard*.txt."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.api import Computation, ValueState
from millwheel.core.formats.codec import decode_commit
from millwheel.core.formats.store_layout import CHANNEL, META, PENDING, TIMER
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import Delivery, Productions
from millwheel.engine.workers.delivery.outbox import Send, split_epoch
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.unit.engine.workers.bench import NOW, Counting, Dial, ShardBench, Silent

_FAMILIES = {META: "meta", CHANNEL: "marks", PENDING: "productions", TIMER: "timers", b"s": "state"}
_SECOND = 1_000_000


class Summing(Computation):
    """Adds up the values of each key, and says so ten units of event time after the last record."""

    total = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.total.set(self.total.get() + record.value)
        ctx.set_timer("say", record.timestamp + 10)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        ctx.produce("out", {"key": ctx.key, "number": 0, "value": self.total.get()})


_CODE = {"counting": Counting, "silent": Silent, "summing": Summing}


class OneShard:
    """``start CODE strong|weak exactly_once|at_least_once LIMIT=N...`` opens an empty shard of the
    code (numbers the records of a key, keeps them silently, or sums them until a timer fires).
    ``deliver FIRST KEY=VALUE@TIME...``: one delivery of records numbered from FIRST, in a new epoch
    (``copy FIRST ...``: over another channel). ``run`` until there is nothing to do; what may be
    written goes to the journal, which has it with ``durable``. ``send`` what may leave, ``ack``
    what was sent. ``watermark TIME`` of the input, ``clock SECONDS`` later. ``crash``: the next
    owner opens what is durable. ``hold`` says what keeps the watermark, ``stored`` what of each
    kind is in the store."""

    def __init__(self) -> None:
        self._bench = ShardBench(Counting)
        self._sent: list[Send] = []

    def do(self, command: str, words: list[str]) -> list[str]:
        found: list[str] = getattr(self, f"_{command}")(*words)
        self._bench.shard.validate()
        return found

    def _start(self, code: str, productions: str, delivery: str, *limits: str) -> list[str]:
        sizes = {name: int(n) for name, n in (limit.split("=") for limit in limits)}
        dial = Dial(Delivery(delivery), Productions(productions))
        self._bench = ShardBench(_CODE[code], dial, ShardLimits(**sizes))
        return []

    def _deliver(self, first: str, *rows: str) -> list[str]:
        return [self._bench.deliver(*map(_row, rows), first=int(first)).value]

    def _copy(self, first: str, *rows: str) -> list[str]:
        made = self._bench.deliver(*map(_row, rows), first=int(first), channel="other")
        return [made.value]

    def _run(self) -> list[str]:
        before = len(self._bench.waiting)
        self._bench.run()
        return [_written(entry) for _, entry in self._bench.waiting[before:]]

    def _durable(self) -> list[str]:
        before = len(self._bench.acked)
        self._bench.settle()
        lasts = [a.batch.last_seq for a in self._bench.acked[before:]]
        return [f"ack of what ends with #{last}" if last else "ack of copies" for last in lasts]

    def _send(self) -> list[str]:
        self._sent = self._bench.sends()
        return [_sent(send) for send in self._sent]

    def _ack(self) -> list[str]:
        self._bench.ack(*self._sent)
        return []

    def _crash(self) -> list[str]:
        self._bench.crash()
        return [f"token {self._bench.token}, at commit {self._bench.shard.commits.made}"]

    def _watermark(self, us: str) -> list[str]:
        self._bench.watermark(MAX_TIME if us == "end" else int(us))
        return []

    def _clock(self, seconds: str) -> list[str]:
        self._bench.clock.now = NOW + int(float(seconds) * _SECOND)
        return []

    def _hold(self) -> list[str]:
        hold = self._bench.shard.watermark.hold(self._bench.now)
        names = {MIN_TIME: "the beginning", MAX_TIME: "the end"}
        return [f"held at {names.get(hold.at, hold.at)} by {hold.holder or 'nobody'}"]

    def _stored(self) -> list[str]:
        kinds = [_FAMILIES.get(key[:1], "more") for key in self._bench.stored()]
        return [f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))]


def _row(word: str) -> tuple[str, int, int]:
    key, _, rest = word.partition("=")
    value, _, at = rest.partition("@")
    return key, int(value), int(at)


def _written(entry: bytes) -> str:
    if not entry:
        return "nothing to write"
    commit = decode_commit(entry)
    puts = sorted({_FAMILIES.get(key[:1], "more") for key, _ in commit.puts})
    gone = sorted({_FAMILIES.get(key[:1], "more") for key in commit.deletes})
    less = f", without {' and '.join(gone)}" if gone else ""
    return f"commit {commit.number}/{commit.token}: {' '.join(puts)}{less}"


def _sent(send: Send) -> str:
    token, lives = split_epoch(send.epoch)
    rows = [msgspec.msgpack.decode(raw) for raw in send.batch.values]
    named = [f"#{seq}" for seq in send.batch.seqs] or ["id" if send.batch.ids else "-"] * len(rows)
    texts = [
        f"{name} {row['key']}={row['value']}" + (f" ({row['number']})" if row["number"] else "")
        for name, row in zip(named, rows, strict=True)
    ]
    return f"{send.target} {token}.{lives}/{send.index}: {', '.join(texts)}"
