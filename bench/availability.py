"""How available results are while processes are killed, one after the other, for as long as one
likes.

    python -m bench availability [--minutes 60] [--rate 5000] [--every 60]
                                 [--kill workers,master,injector]
                                 [--workers 2] [--spares 0] [--standby] [--seed 1] [--folder DIR]
    python -m bench availability --kill hosts --hosts 2 [--away 10] [--told]
                                 --workers 2 --spares auto --every 300

Four followed files get ``--rate`` records a second; every ``--every`` seconds a process, drawn at
random, is killed, or a host with all its workers is lost: workers run in network namespaces then,
which needs root. A host is lost silently, as when its power fails, or ``--told``: everything on it
is killed, and its connections break before it is away. A second is available when every record made
in it was visible within one second; ``of_ranges`` is the share of sixteenths of the key space times
seconds that were. ``at_a_kill_each`` reckons it for other rates of kills: 1 less what a kill cost
on average over the time between two. At the end the rows of all windows are compared with those
that the writer has counted itself. Ends with a line of JSON; 1 if a row differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.availability_seen import availability, gap, lines, look
from bench.hosts import Hosts, environment
from bench.paths import HOUSE, PIPELINES, PLUGINS
from bench.stats import quantile
from millwheel.tools.chaos.plan import Target
from millwheel.tools.chaos.processes import processes_of

FILES, KEYS = 4, 400
_WINDOW_MS = 10_000
_PAUSE_S = 0.02
_WARM_S = 10.0
_AFTER_S = 15.0
_PATIENCE_S = 300.0
RATES_S = (60, 600, 3_600, 86_400)
"""Times between two kills for which a share is reckoned."""


@dataclass
class Writer:
    """Appends records to the files and counts, by itself, what the windows must show."""

    folder: Path
    rate: int
    counts: Counter[int] = field(default_factory=Counter)
    rows: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until told to stop. The time of a record is the wall clock, in ms, which never goes back
        here."""
        files = [
            (self.folder / f"{number}.jsonl").open("ab", buffering=0) for number in range(FILES)
        ]
        rng, made, began, last_ms = random.Random(7), 0, time.monotonic(), 0
        while not self.stop.wait(_PAUSE_S):
            due = int((time.monotonic() - began) * self.rate)
            last_ms = max(last_ms, time.time_ns() // 1_000_000)
            parts: list[list[bytes]] = [[] for _ in files]
            for key in (rng.randrange(KEYS) for _ in range(due - made)):
                self._count(key, last_ms)
                parts[key % FILES].append(b'{"key":%d,"ts":%d}\n' % (key, last_ms))
            made = due
            for file, part in zip(files, parts, strict=True):
                file.write(b"".join(part))
        for file in files:
            file.close()

    def _count(self, key: int, ms: int) -> None:
        self.counts[key] += 1
        row = self.rows.setdefault((key, ms - ms % _WINDOW_MS), [0, 0])
        row[0] += 1
        row[1] = self.counts[key]


def start(
    arguments: argparse.Namespace, folder: Path, hosts: Hosts | None, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """The run, in the background."""
    pipeline = PIPELINES / "availability.yaml"
    sets = ["--set", f"input={folder}/in/*.jsonl", "--set", f"output={folder / 'out'}"]
    sets += ["--set", f"standby={int(arguments.standby)}"]
    if hosts is None:
        command = [
            sys.executable,
            "-m",
            "millwheel",
            "run",
            str(pipeline),
            "--launcher",
            "processes",
            *sets,
        ]
        command += [
            "--workers",
            str(arguments.workers),
            "--spares",
            arguments.spares,
            "--root",
            str(folder / "root"),
        ]
    else:
        command = hosts.command(pipeline, arguments.workers, arguments.spares, sets)
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=_environment(variables)
        )


def end(folder: Path, driver: subprocess.Popen[bytes]) -> None:
    """Let everything that was read come to its end, and wait for it."""
    command = [sys.executable, "-m", "millwheel", "stop", "--drain", "--root", str(folder / "root")]
    subprocess.run(command, env=_environment(), timeout=_PATIENCE_S, check=True)
    driver.wait(_PATIENCE_S)


def _environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return environment(more or {}, [HOUSE, PLUGINS])


def strike(
    driver: int, targets: list[Target], rng: random.Random, hosts: Hosts | None, told: bool
) -> tuple[str, float] | None:
    """Kill one process of all that live, or lose one of the hosts; what it was, and when (s since
    1970)."""
    if hosts is not None and Target.HOSTS in targets:
        lost = hosts.lose(driver, rng, told=told)
        return None if lost is None else (Target.HOSTS.value, lost.at)
    living = [(target, process) for target in targets for process in processes_of(driver, target)]
    if not living:
        return None
    target, process = rng.choice(living)
    at = time.time()
    os.kill(process.pid, signal.SIGKILL)
    return target.value, at


def measure(
    arguments: argparse.Namespace, driver: subprocess.Popen[bytes], hosts: Hosts | None
) -> list[tuple[str, float]]:
    """All kills."""
    targets = [Target(name) for name in arguments.kill.split(",") if name]
    rng, kills = random.Random(arguments.seed), []
    ends = time.monotonic() + arguments.minutes * 60
    next_kill = time.monotonic() + arguments.every
    while time.monotonic() < ends and driver.poll() is None:
        time.sleep(0.2)
        if hosts is not None:
            hosts.step()
        if time.monotonic() >= next_kill:
            next_kill += arguments.every
            struck = strike(driver.pid, targets, rng, hosts, arguments.told) if targets else None
            kills += [struck] if struck else []
            print(json.dumps({"killed": struck, "number": len(kills)}), flush=True)
    while hosts is not None and not hosts.step():
        time.sleep(0.2)
    return kills


def rows_of(folder: Path) -> dict[tuple[int, int], list[list[int]]]:
    """What the windows showed: each row once, so lists of one."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found.setdefault((row["group"], row["window_start"] // 1000), []).append(
                [row["records"], row["last"]]
            )
    return found


def differences(writer: Writer, found: dict[tuple[int, int], list[list[int]]]) -> list[str]:
    """Rows that are missing, doubled or wrong."""
    keys = sorted(writer.rows.keys() | found.keys())
    return [
        f"key {key[0]}, window {key[1]}: {found.get(key)}, not [{writer.rows.get(key)}]"
        for key in keys
        if found.get(key) != [writer.rows.get(key)]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench availability", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--kill", default="workers,master,injector")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--spares", default="0", help="a number, or auto")
    parser.add_argument(
        "--hosts", type=int, default=0, help="hosts that the workers share; for --kill hosts"
    )
    parser.add_argument(
        "--away", type=float, default=10.0, help="seconds until a lost host is back"
    )
    parser.add_argument(
        "--told",
        action="store_true",
        help="connections to a lost host break, rather than fall silent",
    )
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="availability-"))
    (folder / "in").mkdir(parents=True)
    writer = Writer(folder / "in", arguments.rate)
    for number in range(FILES):
        (folder / "in" / f"{number}.jsonl").touch()
    with ExitStack() as stack:
        hosts = Hosts(arguments.hosts, arguments.away, folder) if arguments.hosts else None
        variables = {} if hosts is None else hosts.enter(stack)
        return run(arguments, folder, writer, hosts, start(arguments, folder, hosts, variables))


def run(
    arguments: argparse.Namespace,
    folder: Path,
    writer: Writer,
    hosts: Hosts | None,
    driver: subprocess.Popen[bytes],
) -> int:
    """Write, kill, end the run and report."""
    thread = threading.Thread(target=writer.run)
    try:
        # until shards are served
        while not any((folder / "out" / "seen").glob("*.jsonl")) and driver.poll() is None:
            time.sleep(0.1)
        thread.start()
        time.sleep(_WARM_S)
        began = time.time()
        kills = measure(arguments, driver, hosts)
        ended = time.time()
    finally:
        writer.stop.set()
        if thread.ident:
            thread.join()
        if driver.poll() is None:
            end(folder, driver)
    return report(writer, folder, kills, began, ended, driver.returncode)


def report(
    writer: Writer,
    folder: Path,
    kills: list[tuple[str, float]],
    began: float,
    ended: float,
    code: int,
) -> int:
    """Print the figures; 1 when a row differs or the run failed."""
    seen = look(lines(folder / "out" / "seen"))
    found = availability(seen, began, ended)
    gaps: dict[str, list[float]] = {}
    for what, at in kills:
        gaps.setdefault(what, []).append(gap(seen, at - 0.5, min(at + _AFTER_S, ended)))
    wrong = differences(writer, rows_of(folder / "out" / "minutes"))
    print(
        json.dumps(
            {
                "records": sum(writer.counts.values()),
                "kills": len(kills),
                "available": f"{found.good} of {found.seconds} s",
                "share": round(found.good / max(found.seconds, 1), 5),
                "of_ranges": round(1 - found.lost / max(found.seconds, 1), 6),
                "lost_s_per_kill": round(found.lost / max(len(kills), 1), 3),
                "at_a_kill_each": {
                    f"{each_s} s": round(found.at(len(kills), each_s), 6) for each_s in RATES_S
                },
                "gaps_s": {
                    what: {
                        "times": len(some),
                        "median": round(quantile(sorted(some), 0.5), 2),
                        "longest": round(max(some), 2),
                    }
                    for what, some in gaps.items()
                },
                "rows": len(writer.rows),
                "differences": wrong[:5],
                "exit": code,
            }
        )
    )
    return 1 if wrong or code else 0


if __name__ == "__main__":
    sys.exit(main())
