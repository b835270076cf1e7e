"""The settings of a master: which nodes it serves, and when it decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.control.master.balance import BalanceConfig
from millwheel.control.master.speeds import SpeedConfig
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.errors import invariant


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConfig:
    """The nodes to be served, and the delays before decisions.

    While nothing is served, shards are given away only once ``expected_workers`` are there, or
    ``grace_us`` after the first one came. Balancing begins ``settle_us`` after the last change of
    membership, and ``recover_us`` after the last loss of a worker: its shards have work to catch up
    with, and one that moves stands still. (A new master counts its own beginning as a loss: it may
    follow one that died after a worker.) It moves at most ``moves_at_once`` shards at a time.
    Shards for a worker that replaces a lost one move ``gently_us`` apart (0: as all moves), see
    :class:`.MovePace`. With ``balance`` it also uses the measured load, and ``speeds`` decides how
    slow workers are found by it. With ``spares``, at most ``expected_workers`` workers own shards
    unless another number of seats is requested; without spares, all workers do. Standbys are chosen
    ``standby_settle_us`` after the last change of membership, so that a restarted worker counts.
    """

    nodes: tuple[NodeDemand, ...]
    expected_workers: int
    spares: int = 0
    grace_us: int = 3_000_000
    settle_us: int = 1_000_000
    recover_us: int = 3_000_000
    standby_settle_us: int = 3_000_000
    moves_at_once: int = 4
    gently_us: int = 0
    balance: BalanceConfig | None = None
    speeds: SpeedConfig = field(default_factory=SpeedConfig)

    def __post_init__(self) -> None:
        invariant(
            self.expected_workers > 0,
            f"expected_workers is {self.expected_workers}, must be positive",
        )
        invariant(
            self.moves_at_once > 0, f"moves_at_once is {self.moves_at_once}, must be positive"
        )
