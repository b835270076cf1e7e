"""Where a microsecond goes: the threads of the workers that hold the interpreter, sampled while a
part runs.

    python -m bench profile [A|B|C] [--records 3000000]

py-spy looks at every worker 250 times a second. A sample counts for the first line of ``STAGES``
that names one of its functions, from the innermost outwards; its time is its share of the CPU time
of the workers per record of the input. Prints the table, and keeps it in ``bench/profiles``.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import psutil

from bench.contestants import Job, ours
from bench.inputs import ads
from bench.latency import DIAL, RATE
from bench.machine import machine
from bench.paths import PROFILES

STAGES = (
    ("the user's callback", ("process_record", "process_timer")),
    ("what a callback produces", ("produce",)),
    ("state of keys", ("workers/state/keyed_state", "workers/state/handles")),
    ("stores", ("adapters/stores", "write_behind")),
    (
        "journal",
        ("adapters/journal/", "core/formats/journal_segment", "commits.py", "threads/journal.py"),
    ),
    ("reading and parsing", ("sources/", "decode_lines")),
    ("times, lateness, keys at the source", ("timestamps.py", "workers/sources/")),
    ("routing to shards", ("routing.py", "core/model/records.py", "core/model/keys.py", "where")),
    ("encoding and decoding between shards", ("codec.py", "core/columns/batch")),
    ("windows and aggregates", ("core/", "operators/windows/")),
    ("sinks", ("sinks/", "prepare")),
    ("productions until they are applied", ("productions.py", "outbox.py", "inbox.py")),
    ("gRPC", ("grpc/", "server.py")),
    (
        "one bundle of a shard, but for the above",
        ("shard.py", "bundle.py", "callbacks.py", "overlay.py"),
    ),
    ("the loop, but for the above", ("runtime.py", "process.py", "shard_handle.py")),
)
OTHER = "everything else"
_REST, _LEAST_SHARE = "stages below 1 %", 0.01
_START_S = 60.0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench profile", description=__doc__.splitlines()[0]
    )
    parser.add_argument("part", nargs="?", default="B", choices=("A", "B", "C"))
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--print", action="store_true", help="to the terminal only")
    parser.add_argument("--seconds", type=int, default=0, help="C: for how long (default 10)")
    arguments = parser.parse_args()
    seconds = arguments.seconds or (10 if arguments.part == "C" else 120)
    with tempfile.TemporaryDirectory() as folder:
        samples, cpu_s, records = profiled(arguments.part, arguments.records, seconds, Path(folder))
    if not samples:
        print(
            "no samples: the run ended before it could be looked at; give more --records",
            file=sys.stderr,
        )
        return 1
    told = table(staged(samples), cpu_s / records * 1e6)
    print(told)
    if not arguments.print:
        PROFILES.mkdir(exist_ok=True)
        text = (
            f"{conditions(arguments.part, records, sum(count for _, count in samples))}\n\n{told}\n"
        )
        (PROFILES / f"{arguments.part}.md").write_text(text, encoding="utf-8")
    return 0


def conditions(part: str, records: int, samples: int) -> str:
    """What was looked at, in a sentence."""
    on = machine()
    work = {
        "A": "a tumbling minute per ad",
        "B": "a Python callback with keyed state",
        "C": "two stages, strong",
    }[part]
    return (
        f"Part {part}: {work}; {records:,} records of JSON, two workers, {samples:,} samples,"
        f" {datetime.now(timezone.utc):%Y-%m-%d}; {on['cpu']}, {on['cores']} cores, Python"
        f" {on['python']}."
    )


def profiled(
    part: str, records: int, seconds: int, folder: Path
) -> tuple[list[tuple[str, int]], float, int]:
    """(stacks with their counts, CPU seconds of the workers while they were looked at, records in
    that time)."""
    if part == "C":
        dial = DIAL["strong"]
        start = ours(
            "latency", params={**dial, "rate": str(RATE), "count": str(RATE * (seconds + 20))}
        )
        run = start(Job(folder, None, "", 300.0))
    else:
        load = ads(records, 4)
        run = ours({"A": "windows", "B": "callback"}[part])(
            Job(folder, load.of("jsonl"), "jsonl", 300.0)
        )
    with subprocess.Popen(run.command, env={**psutil.Process().environ(), **run.env}, cwd=folder,
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        workers = _workers(process.pid)
        time.sleep(5.0 if part == "C" else 1.0)
        before = [sum(worker.cpu_times()[:2]) for worker in workers]
        spies = [_spy(worker.pid, seconds, folder / f"{worker.pid}.stacks") for worker in workers]
        after = _until(workers, seconds)
        for spy in spies:
            spy.wait()
        process.terminate()
    stacks = [pair for path in folder.glob("*.stacks") for pair in _stacks(path)]
    return stacks, sum(after) - sum(before), RATE * seconds if part == "C" else records


def _until(workers: list[psutil.Process], seconds: float) -> list[float]:
    """The CPU time of each worker after so long, or at its end."""
    deadline, found = time.monotonic() + seconds, [0.0] * len(workers)
    while time.monotonic() < deadline:
        for index, worker in enumerate(workers):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[index] = max(found[index], sum(worker.cpu_times()[:2]))
        if not any(worker.is_running() for worker in workers):
            break
        time.sleep(0.1)
    return found


def _workers(pid: int) -> list[psutil.Process]:
    """The two workers of a run, once they are there."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        family = psutil.Process(pid).children(recursive=True)
        found = [child for child in family if _is_worker(child)]
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"no two workers within {_START_S:.0f} s")


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "millwheel.engine.workers" in process.cmdline()
    return False


def _spy(pid: int, seconds: int, path: Path) -> subprocess.Popen[bytes]:
    command = [
        "py-spy",
        "record",
        "--gil",
        "--rate",
        "250",
        "--duration",
        str(seconds),
        "--format",
        "raw",
    ]
    command[0] = str(Path(sys.executable).with_name("py-spy"))
    return subprocess.Popen([*command, "-o", str(path), "-p", str(pid)], stdout=-3, stderr=-3)


def _stacks(path: Path) -> Iterator[tuple[str, int]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        yield stack, int(count)


def staged(samples: list[tuple[str, int]]) -> Counter[str]:
    """How many samples each stage has."""
    found: Counter[str] = Counter()
    for stack, count in samples:
        found[_stage(stack.split(";"))] += count
    return found


def _stage(frames: list[str]) -> str:
    for frame in reversed(frames):
        for stage, names in STAGES:
            if any(name in frame for name in names):
                return stage
    return OTHER


def table(found: Counter[str], us_per_record: float) -> str:
    """As Markdown, the most expensive first. Stages below a hundredth are one row."""
    whole = sum(found.values())
    shown = Counter({stage: n for stage, n in found.items() if n >= _LEAST_SHARE * whole})
    if rest := whole - sum(shown.values()):
        shown[_REST] = rest
    rows = [
        f"| {stage} | {n / whole:.0%} | {n / whole * us_per_record:.2f} |"
        for stage, n in shown.most_common()
    ]
    head = ["| stage | share | µs per record |", "|---|---|---|"]
    return "\n".join([*head, *rows, f"| **all** | | **{us_per_record:.2f}** |"])


if __name__ == "__main__":
    sys.exit(main())
