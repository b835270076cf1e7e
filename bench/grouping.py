"""An operator of several instances behind one sender, simulated: how a grouping does with them. No
process is started.

The sender makes records at given moments and sends each once the instance chosen for it has room
for it: an instance holds up to :data:`ROOM` records, its service times are artificial, and a
message travels as long as table 1 of the paper says. Completion time is ack minus send, as a sender
can measure it, and becomes known with the ack. At the end of each window the grouping gets the
means of what was acked in it and begins the next epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from random import Random

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.tables import LATENCY_US, Measured, Network, first_table, imbalance

WAITING = "tag, ack minus send"
CONTESTANTS = (*GROUPINGS, WAITING)
"""All groupings, and TAG by completion times in which a record's wait behind others counts, as in
the paper."""
SERVICE_US = 1000.0
"""Of an instance of speed 1."""
ROOM = 32
KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Setup:
    """``speeds`` per instance; ``load`` is the rate of records as a share of what all instances
    together can do (above 1: as fast as they are taken). At half time, ``drift`` makes other keys
    hot and ``slowed`` makes an instance four times slower."""

    speeds: tuple[float, ...]
    exponent: float = 1.4
    load: float = 10.0
    records: int = 72_000
    windows: int = 24
    drift: bool = False
    slowed: int | None = None
    network: tuple[Network, ...] = ()
    with_waiting: bool = False
    seed: int = 1

    @property
    def rate_per_us(self) -> float:
        """Records a microsecond that all instances together can do."""
        return sum(self.speeds) / SERVICE_US


@dataclass(slots=True)
class Outcome:
    """What came of a run. ``loads``: of each window, each instance's busy time, in microseconds."""

    per_s: float = 0.0
    latency_us: float = 0.0
    replicas: float = 0.0
    most_replicas: int = 0
    loads: list[list[float]] = field(default_factory=list)
    window_latency_us: list[float] = field(default_factory=list)
    window_per_s: list[float] = field(default_factory=list)

    @property
    def steady_per_s(self) -> float:
        """The rate of the second half of the windows."""
        later = self.window_per_s[len(self.window_per_s) // 2 :]
        return len(later) / sum(1 / each for each in later)

    @property
    def steady_latency_us(self) -> float:
        """The mean latency of the second half of the windows."""
        later = self.window_latency_us[len(self.window_latency_us) // 2 :]
        return sum(later) / len(later)

    @property
    def imbalance(self) -> float:
        """Formula 2 of busy times, over all windows but the first: the mean of the windows."""
        after = [imbalance(each) for each in self.loads[1:]]
        return sum(after) / len(after)

    def reaction(self, half: int) -> int | None:
        """After how many windows from half time on the latency stays within 1.25 times that before;
        None: never."""
        before = sorted(self.window_latency_us[1:half])[(half - 1) // 2]
        after = self.window_latency_us[half:]
        calm_from = max(
            (at + 1 for at, each in enumerate(after) if each > 1.25 * before), default=0
        )
        return calm_from if calm_from < len(after) else None


class _Instance:
    """One instance: when it is free, what it holds, and what was acked since the window began."""

    def __init__(self, service_us: float, travel_us: float) -> None:
        self.service_us, self.travel_us = service_us, travel_us
        self.last_ack_us = self.alone_us = 0.0
        self.free_us = 0.0
        self.held: deque[tuple[float, float]] = deque()
        """(acked, sent) of what is not known to be acked yet, in that order."""
        self.total_us = 0.0
        self.acked = 0
        self.busy_us = 0.0

    def settle(self, now_us: float) -> None:
        """Note the acks that have come."""
        held = self.held
        while held and held[0][0] <= now_us:
            acked_us, sent_us = held.popleft()
            self.total_us += acked_us - sent_us
            self.alone_us += acked_us - max(sent_us, self.last_ack_us)
            self.last_ack_us = acked_us
            self.acked += 1

    def take(self, now_us: float) -> tuple[float, float]:
        """Send a record now or when there is room: when it is sent, and when it is done."""
        self.settle(now_us)
        if len(self.held) >= ROOM:
            now_us = self.held[0][0]
            self.settle(now_us)
        self.free_us = max(self.free_us, now_us + self.travel_us) + self.service_us
        self.busy_us += self.service_us
        self.held.append((self.free_us + self.travel_us, now_us))
        return now_us, self.free_us

    def measured(self) -> tuple[float | None, float | None]:
        """The means of what was acked since last asked: completion times, and those without own
        waiting."""
        count = self.acked
        means = (self.total_us / count, self.alone_us / count) if count else (None, None)
        self.total_us = self.alone_us = self.acked = 0
        return means


@cache
def run(name: str, setup: Setup) -> Outcome:
    """One contestant in one set-up. The outcome is shared: do not change it."""
    if name == WAITING:
        return simulate("tag", replace(setup, with_waiting=True))
    return simulate(name, setup)


def keys_of(setup: Setup) -> list[int]:
    """The key of each record: Zipf, and with drift other keys in the same order of ranks from half
    time on."""
    ends = list(accumulate((rank + 1) ** -setup.exponent for rank in range(KEYS)))
    found = Random(setup.seed).choices(range(KEYS), cum_weights=ends, k=setup.records)
    if setup.drift:
        half = setup.records // 2
        found[half:] = [(key + KEYS // 2) % KEYS for key in found[half:]]
    return found


def simulate(name: str, setup: Setup) -> Outcome:
    """Run one grouping through a set-up."""
    network = setup.network or network_of(len(setup.speeds))
    instances = [
        _Instance(SERVICE_US / speed, LATENCY_US[where])
        for speed, where in zip(setup.speeds, network, strict=True)
    ]
    grouping = GROUPINGS[name](first_table(len(instances)), (), network)
    outcome = Outcome()
    seen: dict[int, int] = {}
    gap_us = 1 / (setup.rate_per_us * setup.load)
    now_us = waited_us = begun_us = 0.0
    per_window = setup.records // setup.windows
    total_us = 0.0
    for position, key in enumerate(keys_of(setup)):
        if position == setup.records // 2 and setup.slowed is not None:
            instances[setup.slowed].service_us *= 4
        made_us = position * gap_us
        chosen = grouping.choose(position, key)
        seen[key] = seen.get(key, 0) | 1 << chosen
        sent_us, done_us = instances[chosen].take(max(now_us, made_us))
        # Under saturation no record waits to be made: its age begins when the sender is free for
        # it.
        waited_us += done_us - (made_us if setup.load < 1 else max(now_us, made_us))
        now_us = sent_us
        if (position + 1) % per_window == 0:
            _end_window(grouping, instances, now_us, outcome, setup.with_waiting)
            outcome.window_latency_us.append(waited_us / per_window)
            outcome.window_per_s.append(per_window / (now_us - begun_us) * 1e6)
            total_us, waited_us, begun_us = total_us + waited_us, 0.0, now_us
    outcome.per_s = setup.records / max(each.free_us for each in instances) * 1e6
    outcome.latency_us = total_us / setup.records
    copies = [each.bit_count() for each in seen.values()]
    outcome.replicas, outcome.most_replicas = sum(copies) / len(copies), max(copies)
    return outcome


def _end_window(
    grouping: Grouping,
    instances: Sequence[_Instance],
    now_us: float,
    outcome: Outcome,
    with_waiting: bool,
) -> None:
    for each in instances:
        each.settle(now_us)
    outcome.loads.append([each.busy_us for each in instances])
    for each in instances:
        each.busy_us = 0.0
    means = [each.measured() for each in instances]
    alone_us = () if with_waiting else tuple(alone for _, alone in means)
    grouping.begin(grouping.next_table(Measured(tuple(whole for whole, _ in means), alone_us)))


def network_of(instances: int) -> tuple[Network, ...]:
    """Where instances run unless said otherwise: each third on the sender's host, in its rack, and
    elsewhere."""
    classes = (Network.HOST, Network.RACK, Network.ELSEWHERE)
    return tuple(classes[at % 3] for at in range(instances))


def speeds_of(shape: str, instances: int) -> tuple[float, ...]:
    """``equal``; ``mild``: a third is 20 % slower than the others; ``unequal``: half of speed 1, a
    quarter of 2 and a quarter of 4 (12: 6x1, 3x2, 3x4)."""
    if shape == "equal":
        return (1.0,) * instances
    if shape == "mild":
        slow = max(1, round(instances / 3))
        return (0.8,) * slow + (1.0,) * (instances - slow)
    ones, twos = (instances + 1) // 2, (instances + 2) // 4
    return (1.0,) * ones + (2.0,) * twos + (4.0,) * (instances - ones - twos)


def saturated_then_loaded(name: str, setup: Setup, load: float = 0.8) -> tuple[Outcome, Outcome]:
    """The same set-up as fast as it goes, and at a share of what all instances can do."""
    return simulate(name, setup), simulate(name, replace(setup, load=load))
