"""Share of queries that are answered while a worker is killed, and while one stands still.

    python -m bench query_faults [--fault kill,stop] [--standby 1,0] [--rate 2000] [--clients 16]
                                 [--warm 5] [--runs 1] [--folder DIR]

Clients ask as the gateway does, each for one key, again 20 ms after each answer: the shards'
owners, and their standbys where these are silent. A query is answered when an answer came within
its deadline of one second. The gap of a key is the longest time between two of its answers; that of
a run is the longest of all keys. Ends with a line of JSON per case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.queried_run import QueriedRun, Writer, asking_workers, queried_run
from bench.stats import quantile
from millwheel.engine.queries.peer_client import Workers
from millwheel.tools.chaos.processes import strike
from millwheel.tools.gateway.questions import AskedQuestion, asking_of

DEADLINE_S = 1.0
PAUSE_S = 0.02
_BEFORE_S, _AFTER_S, _STOPPED_S = 3.0, 12.0, 12.0
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass
class Told:
    """What became of the queries of all clients."""

    asked: int = 0
    answered: int = 0
    by: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """As a line of JSON."""
        waits = sorted(self.waits_s)
        return {
            "asked": self.asked,
            "answered_percent": round(100 * self.answered / max(self.asked, 1), 4),
            "longest_gap_ms": round(1000 * max(self.gaps_s, default=0.0), 1),
            "p50_ms": round(1000 * quantile(waits, 0.5), 2),
            "p99_ms": round(1000 * quantile(waits, 0.99), 2),
            "by": dict(self.by),
            "why_not": dict(self.why.most_common(3)),
        }


async def client(run: QueriedRun, workers: Workers, key: int, end_s: float, told: Told) -> None:
    """Ask for one key until ``end_s``."""
    question = AskedQuestion(indicator="clicks", key=key, window="10m")
    last_s = time.monotonic()
    while (began_s := time.monotonic()) < end_s:
        asking = asking_of(question, True, run.known)
        await workers.ask([asking], DEADLINE_S)
        now_s = time.monotonic()
        told.asked += 1
        told.waits_s.append(now_s - began_s)
        if isinstance(asking.reply, bytes):
            told.answered += 1
            told.by[json.loads(asking.reply)["consistency"]] += 1
            told.gaps_s.append(now_s - last_s)
            last_s = now_s
        else:
            told.why[str(asking.reply)] += 1
        await asyncio.sleep(PAUSE_S)


async def clients(run: QueriedRun, count: int, seconds: float, told: Told) -> None:
    """All clients for a while."""
    workers, end_s = asking_workers(), time.monotonic() + seconds
    await asyncio.gather(*(client(run, workers, key, end_s, told) for key in range(count)))
    workers.links.close()
    await asyncio.sleep(0)


def case(
    fault: str, standby: bool, rate: int, count: int, folder: Path, warm_s: float = 5
) -> dict[str, Any]:
    """One fault in one run; its figures."""
    with queried_run(folder, standby=standby) as run:
        writer = Writer(folder / "in", rate)
        writing = threading.Thread(target=writer.run, daemon=True)
        writing.start()
        try:
            asyncio.run(clients(run, count, warm_s, Told()))  # warm
            told = Told()
            asking = threading.Thread(
                target=lambda: asyncio.run(
                    clients(run, count, _BEFORE_S + _STOPPED_S + _AFTER_S, told)
                )
            )
            asking.start()
            time.sleep(_BEFORE_S)
            victim = run.workers()[-1]
            strike(victim, _SIGNALS[fault])
            if fault == "stop":
                time.sleep(_STOPPED_S)
                strike(victim, signal.SIGCONT)
            asking.join()
        finally:
            writer.stop.set()
            writing.join()
        return {"fault": fault, "standby": int(standby), "records_per_s": rate, **told.figures()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench query_faults", description=__doc__)
    parser.add_argument("--fault", default="kill,stop")
    parser.add_argument("--standby", default="1,0")
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument(
        "--warm",
        type=float,
        default=5,
        help="seconds before it is measured; 40: there are snapshots",
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the runs' folders here")
    arguments = parser.parse_args(sys.argv[1:])
    with tempfile.TemporaryDirectory() as temporary:
        place = arguments.folder or Path(temporary)
        for number in range(arguments.runs):
            for fault in arguments.fault.split(","):
                for standby in arguments.standby.split(","):
                    folder = place / f"{fault}-{standby}-{number}"
                    print(
                        json.dumps(
                            case(
                                fault,
                                standby == "1",
                                arguments.rate,
                                arguments.clients,
                                folder,
                                arguments.warm,
                            )
                        ),
                        flush=True,
                    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
