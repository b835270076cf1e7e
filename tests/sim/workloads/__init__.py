"""What a simulated cluster works on, and what must have come out of it in the end."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.workloads.accounts import Accounts
from tests.sim.workloads.arriving import Arriving
from tests.sim.workloads.base import Workload
from tests.sim.workloads.chains import Chains
from tests.sim.workloads.copied import Copied
from tests.sim.workloads.crowded import Crowded
from tests.sim.workloads.dying import Dying
from tests.sim.workloads.enriched import Enriched
from tests.sim.workloads.graphs import Graphs
from tests.sim.workloads.hanging import Hanging
from tests.sim.workloads.held import Held
from tests.sim.workloads.ids import ForgottenIds, Ids
from tests.sim.workloads.injected import Injected
from tests.sim.workloads.lakes import Lakes
from tests.sim.workloads.letters import Letters
from tests.sim.workloads.numbers import Numbers
from tests.sim.workloads.paired import Paired, PairedWindows
from tests.sim.workloads.placed import Placed
from tests.sim.workloads.ringing import Rings
from tests.sim.workloads.searched import Searched
from tests.sim.workloads.shown import Shown, Transactional
from tests.sim.workloads.sliced import Sliced
from tests.sim.workloads.straggling import Straggling
from tests.sim.workloads.tables import Tables
from tests.sim.workloads.waiting import Waiting
from tests.sim.workloads.windows import (
    AskedWindows,
    Combined,
    Grouped,
    HotOnly,
    Scattered,
    Trickling,
    Windows,
)

WORKLOADS: dict[str, Callable[[int, float], Workload]] = {
    "numbers": Numbers,
    "accounts": Accounts,
    "windows": Windows,
    "graphs": Graphs,
    "tables": Tables,
    "hanging": Hanging,
    "dying": Dying,
    "letters": Letters,
    "shown": Shown,
    "ringing": Rings,
    "transactional": Transactional,
    "lakes": Lakes,
    "searched": Searched,
    "sliced": Sliced,
    "scattered": Scattered,
    "ids": Ids,
    "forgotten": ForgottenIds,
    "hot": HotOnly,
    "grouped": Grouped,
    "trickling": Trickling,
    "combined": Combined,
    "asked": AskedWindows,
    "held": Held,
    "crowded": Crowded,
    "placed": Placed,
    "straggling": Straggling,
    "injected": Injected,
    "arriving": Arriving,
    "enriched": Enriched,
    "copied": Copied,
    "paired": Paired,
    "paired-windows": PairedWindows,
    "chains": Chains,
    "waiting": Waiting,
}
"""(seed, size from 0 to 1) -> a workload."""

BY_NAME = frozenset(WORKLOADS.keys() - {"numbers", "accounts", "windows", "graphs"})
"""Workloads that a seed does not choose by itself: only a case that names one runs it."""

__all__ = ["BY_NAME", "WORKLOADS", "Workload"]
