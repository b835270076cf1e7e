"""What a question costs a worker beside its system calls: read as words, planned, answered from
slices, written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from millwheel.core.model.names import WorkerName
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService, Session
from millwheel.engine.queries.model import AskedQueries, Found
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.replies import Gather
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import AnswerQueries, Gathering
from millwheel.engine.workers.queries.answering import Answering
from millwheel.testing import PipelineHarness

KEYS, MGET = 500, 100
_ME = WorkerName("me")
_PIPELINE = """
pipeline: asked
streams: {events: {source: injection, timestamp: {field: at, unit: us}, fields: {at: int,
  key: int, cost: int}}}
computations:
  clicks:
    input: {events: {key: key}}
    slices: {every: 10s, levels: [10s, 1m], keep: 1d}
    aggregate: {n: count, cost: {sum: cost}}
"""
_HOUR_US = 3_600_000_000


def session() -> tuple[Session, Answering, Gathering]:
    """A connection to a worker that has all keys, with an hour of slices."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(_PIPELINE)
        file.flush()
        harness = PipelineHarness(file.name, shards=2)
    harness.push(
        "events", [{"at": n * 700_000, "key": n % KEYS, "cost": n} for n in range(10 * KEYS)]
    )
    cluster = harness._cluster
    router = TableRouter(cluster.graph.hash_of)
    router.update(cluster._tables["clicks"])
    served: Any = {
        each.identity.shard: SimpleNamespace(shard=each, answers=True)
        for each in cluster.shards_of("clicks")
    }
    out = Gathering()
    answering = Answering(served, router, lambda _: None, _ME, out, lambda: 0)
    service = QueryService(Catalog.of(harness.spec), ClusterMap(_ME, "clicks"), lambda: _HOUR_US)
    return Session(service), answering, out


def reply(parts: tuple[Session, Answering, Gathering], words: Sequence[bytes]) -> bytes | Gather:
    """The reply to a command."""
    connection, answering, out = parts
    pending = connection.execute(words)
    assert not isinstance(pending, bytes)
    found: list[Found] = []
    answering.asked(AskedQueries(pending.queries, found.extend))
    answering.step()
    answering.release()
    for effect in out.others:
        assert isinstance(effect, AnswerQueries)
        effect.reply(effect.outcomes)
    out.others.clear()
    return pending.reply(found)


def gets() -> Callable[[], object]:
    """A thousand GETs of 500 names."""
    parts, names = session(), [b"clicks.n:%d:1h" % (n % KEYS) for n in range(1_000)]
    for name in names:
        assert reply(parts, [b"GET", name]) == b"$2\r\n10\r\n"

    def work() -> None:
        for name in names:
            reply(parts, [b"GET", name])

    return work


def mgets() -> Callable[[], object]:
    """MGETs of 100 names each, ten times."""
    parts = session()
    words = [b"MGET", *(b"clicks.n:%d:1h" % n for n in range(MGET))]
    assert reply(parts, words) == b"*%d\r\n" % MGET + b"$2\r\n10\r\n" * MGET

    def work() -> None:
        for _ in range(10):
            reply(parts, words)

    return work
