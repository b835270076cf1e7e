"""The limits of each listener. They act before a client has shown a token or a certificate."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """The limits of one listener. ``strangers`` bounds the connections that have not been admitted
    yet, ``most`` the admitted ones; ``per_address`` bounds both for one address off the loopback,
    which gets at most half of the room for strangers. When there are too many strangers, the oldest
    silent one goes, but none within ``grace_s``: until then newcomers wait in the
    kernel. The others are deadlines: ``silent_s`` for the first byte, ``head_s`` for a handshake
    with token or the head of a request, ``body_s`` for its body, ``pause_s`` for the next request,
    ``answer_s`` for the answer to be computed and taken, ``stall_s`` for a client to take one piece
    of a stream that has no end."""

    strangers: int = 512
    most: int = 10_000
    per_address: int = 5_000
    grace_s: float = 0.25
    silent_s: float = 5.0
    head_s: float = 10.0
    body_s: float = 30.0
    pause_s: float = 15.0
    answer_s: float = 60.0
    stall_s: float = 30.0
    head_bytes: int = 64 << 10


def exchange() -> FrontLimits:
    """For connections between workers. A handshake has a thread, so there are few at a time."""
    return FrontLimits(strangers=128, per_address=64)


def metrics() -> FrontLimits:
    """For ``/metrics`` and the probes. A request has a thread; ``most`` are pages, and probes come
    on top of them."""
    return FrontLimits(
        strangers=64, most=16, per_address=32, head_s=5.0, answer_s=5.0, head_bytes=16 << 10
    )


def queries() -> FrontLimits:
    """For the Redis protocol of a worker, whose clients stay connected. The worker needs its other
    files."""
    most = connections(10_000)
    return FrontLimits(
        strangers=min(1_024, most // 4 or 1), most=most, per_address=max(1, most // 2)
    )


def page() -> FrontLimits:
    """For the page of a run: a few people look at it."""
    return FrontLimits(most=connections(200), per_address=100)


def gateway() -> FrontLimits:
    """For the gateway. Start another one for more requests at a time."""
    most = connections(2_000)
    return FrontLimits(most=most, per_address=max(1, most // 2), answer_s=120.0)


def http_source() -> FrontLimits:
    """For an endpoint that accepts records; its options bound the requests in progress and the time
    for a body."""
    return FrontLimits(most=connections(2_000), per_address=1_000, body_s=600.0)


_MOST_FILES = 1 << 20  # without a hard limit: more than any process here can use
_RESERVE = 1_000  # files for journals, stores, snapshots and other workers, out of reach of clients


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one, once, at the start of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections(requested: int) -> int:
    """``requested``, or as many as the limit of open files leaves for the connections of one
    listener: at most half of it."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return requested
    return max(1, min(requested, max(soft - _RESERVE, soft // 2) // 2))
