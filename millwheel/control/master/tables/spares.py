"""Seats and spares: which workers may own shards. Pure, as ``state.py`` is.

There are as many *seats* as the run has workers, spares not counted. A worker that owns shards
keeps its seat; a free seat goes to a spare. So a dead worker is followed by a spare, and when its
process has been started again it owns nothing and is the new spare: nothing moves back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millwheel.core.model.names import WorkerName


def seated(
    hosts: Mapping[WorkerName, str],
    burdens: Mapping[WorkerName, int],
    seats: int,
    suspects: Collection[str],
    following: Mapping[WorkerName, int] | None = None,
) -> set[WorkerName]:
    """The workers that serve: at most ``seats`` of those in ``hosts`` (worker to host).

    ``burdens``: how many shards a worker has or is about to get; those with the most come first, so
    when seats are taken away the rest can be emptied and stand by. A free seat goes to a worker on
    a host that is not among ``suspects`` (a worker has just died there, so the host may be going
    down), then to the one that was ``following`` the most shards that have no owner any more, and
    then to the one that leaves the spares spread best.
    """
    owning = sorted(
        (name for name in hosts if burdens.get(name)), key=lambda name: (-burdens[name], name)
    )
    serving, idle = owning[:seats], sorted(hosts.keys() - owning)
    follows = following or {}

    def rank(name: WorkerName) -> tuple[bool, int, int, int, WorkerName]:
        return (
            hosts[name] in suspects,
            -follows.get(name, 0),
            *_spread(hosts, [*serving, name], idle, name),
            name,
        )

    while idle and len(serving) < seats:
        best = min(idle, key=rank)
        idle.remove(best)
        serving.append(best)
    return set(serving)


@dataclass(frozen=True, slots=True)
class HostLoss:
    """The effect of losing ``host``: the number of workers that serve there. ``spares`` are those
    on other hosts."""

    host: str
    serving: int
    spares: int

    @property
    def missing(self) -> int:
        """How many seats would stay empty, which is how many more spares on other hosts would cover
        the loss; 0 or less: it is covered."""
        return self.serving - self.spares


def losses(
    hosts: Mapping[WorkerName, str], serving: Collection[WorkerName], idle: Collection[WorkerName]
) -> list[HostLoss]:
    """The possible losses of hosts with serving workers, the worst first."""
    serve, spare = Counter(hosts[name] for name in serving), Counter(hosts[name] for name in idle)
    host_losses = [HostLoss(host, count, len(idle) - spare[host]) for host, count in serve.items()]
    return sorted(host_losses, key=lambda loss: (-loss.missing, loss.host))


def exposed(
    hosts: Mapping[WorkerName, str], serving: Collection[WorkerName], idle: Collection[WorkerName]
) -> int:
    """How many seats stay empty after the loss of the host whose loss is worst; 0 or less: any loss
    is covered."""
    worst = losses(hosts, serving, idle)[:1]
    return worst[0].missing if worst else 0


def _spread(
    hosts: Mapping[WorkerName, str],
    serving: list[WorkerName],
    idle: list[WorkerName],
    chosen: WorkerName,
) -> tuple[int, int]:
    """A measure of the state once ``chosen`` serves: the empty seats after the worst loss, then the
    number of serving workers on its host."""
    others = [name for name in idle if name != chosen]
    return exposed(hosts, serving, others), sum(
        1 for name in serving if hosts[name] == hosts[chosen]
    )
