"""The ``limits:`` part: limits of records, keys and state, and of the duration of a callback; and
``latency:``, how long records may wait at each worker for others that share a step with them."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import TracingSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    ByteSize,
    Duration,
    Field,
    FilePart,
    Flag,
    Number,
    Share,
)
from millwheel.language.spec.reading.reader import NodeReader

LIMITS = FilePart(
    "{record: 1MB, callback_timeout: 2m}",
    {
        "record": Field("record", ByteSize(1 << 10, 32 << 20), "the size of one record"),
        "key": Field("key", ByteSize(64, 1 << 20), "the size of one key"),
        "state": Field(
            "state", ByteSize(1 << 10, 256 << 20), "the size of one value of a key's state"
        ),
        "timers_per_key": Field(
            "timers", Number(1, 10_000_000), "timers of a key that wait at the same time"
        ),
        "timers_after_end": Field(
            "chain",
            Number(1, 1_000_000_000),
            "how often timers of a key may set timers once the input has ended",
        ),
        "in_flight": Field(
            "in_flight",
            ByteSize(1 << 20, 64 << 30),
            "bytes of productions that wait in a shard for its consumers",
        ),
        "callback_timeout": Field(
            "callback_us",
            Duration(2 * SECOND, never=True),  # long enough for a busy machine
            "how long a call of your code may take, or never; then its worker ends",
        ),
        "callback_hangs": Field(
            "hangs",
            Number(1, 100),
            "after so many such ends the same record is not passed to your code again",
        ),
    },
    DEFAULTS,
)


def read_limits(reader: NodeReader, node: YamlNode | None) -> Limits:
    """The limits of the file, with defaults for the others."""
    return replace(DEFAULTS, **LIMITS.read(reader, node))


GREEDY, BALANCED = "greedy", "balanced"
# below, a rest costs more than it saves; above, acks would wait for too long
_LEAST_US, _MOST_US = 100, SECOND


def read_latency(reader: NodeReader, node: YamlNode | None) -> int | None:
    """The least time (µs) between the beginnings of two steps of a worker; 0 for ``greedy``, None
    for ``balanced``, which is the default."""
    if node is None or node.text == BALANCED:
        return None
    if node.text == GREEDY:
        return 0
    before = len(reader.problems.found)
    duration = reader.duration(node, 0)
    if len(reader.problems.found) == before and not _LEAST_US <= duration <= _MOST_US:
        reader.bad(
            node,
            f"must be {GREEDY}, {BALANCED} or a duration from 100us to 1s, such as 2ms, not"
            f" {node.text!r}",
        )
    return duration


TRACING = FilePart(
    "{sample: 0.001}",
    {
        "sample": Field(
            "sample", Share(), "the share of records that are traced without being asked to"
        ),
        "keys": Field("keys", Flag(), "whether spans show the keys of records"),
    },
    TracingSpec(),
)


def read_tracing(reader: NodeReader, node: YamlNode | None) -> TracingSpec | None:
    """The part of the file; None: no record is traced."""
    return None if node is None else TracingSpec(**TRACING.read(reader, node))
