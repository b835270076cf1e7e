"""A busy pipeline of 13 computations and 15 sinks, undisturbed and while a worker is killed every
five seconds.

    python -m bench constant_kills [--records 100000] [--every 5] [--rounds 1]

Eleven computations make a row of each record, two count them in windows of event time by key; each
has a sink, and so have the input and the dead letters. Both runs read the same file, on two workers
of plain processes. The workers are killed in turns, from the first row on. Every run is checked:
each sink has each record once, and the windows count all. Prints seconds from the command to its
end, and how many times as long the disturbed run took.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.paths import HOUSE

MAPS, WINDOWS = 11, ("1m", "10m")
_KEYS = 1_000
_LOOK_S = 0.05
_PATIENCE = 20.0
"""A disturbed run is given up after so many times the undisturbed time, plus a minute."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds, and how many workers were killed."""

    seconds: float
    kills: int


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench constant_kills", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two kills")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [_pair(arguments.records, arguments.every) for _ in range(arguments.rounds)]
    print(
        "| undisturbed, s | with kills, s | kills | times as long |", "|---|---|---|---|", sep="\n"
    )
    for calm, killed in pairs:
        ratio = killed.seconds / calm.seconds
        print(f"| {calm.seconds:.1f} | {killed.seconds:.1f} | {killed.kills} | {ratio:.2f} |")
    print(
        f"median: {median(killed.seconds / calm.seconds for calm, killed in pairs):.2f} (floor 3,"
        " goal 1.5)"
    )
    return 0


def _pair(records: int, every_s: float) -> tuple[Outcome, Outcome]:
    with tempfile.TemporaryDirectory(prefix="constant-kills-") as name:
        folder = Path(name)
        (folder / "p.yaml").write_text(pipeline())
        with (folder / "in.jsonl").open("w") as file:
            file.writelines(_line(number) for number in range(records))
        calm = _run(folder, "calm", records, 0.0, 3600.0)
        print(f"undisturbed: {calm.seconds:.1f} s", file=sys.stderr, flush=True)
        return calm, _run(folder, "killed", records, every_s, _PATIENCE * calm.seconds + 60)


def _run(folder: Path, name: str, records: int, every_s: float, most_s: float) -> Outcome:
    out = folder / name
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(folder / "p.yaml"),
        "--launcher",
        "processes",
    ]
    command += [
        "--root",
        str(folder / f"root-{name}"),
        "--set",
        f"input={folder}/in.jsonl",
        "--set",
        f"output={out}",
    ]
    began, kills, next_s = time.monotonic(), 0, 0.0
    with subprocess.Popen([*command, "--workers", "2"], cwd=HOUSE, stdout=-3, stderr=-3) as process:
        while process.poll() is None:
            time.sleep(_LOOK_S)
            now_s = time.monotonic()
            if now_s - began > most_s:
                process.terminate()
                raise SystemExit(f"it still ran after {most_s:.0f} s and {kills} kills")
            if not every_s or (not next_s and not any(out.glob("*/*.jsonl"))):
                continue
            next_s = next_s or now_s + every_s
            if now_s >= next_s:
                next_s, kills = now_s + every_s, kills + _kill(process.pid, kills)
        seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"the run ended with {process.returncode}")
    check(out, records)
    return Outcome(seconds, kills)


def _kill(driver: int, turn: int) -> int:
    """Kill a worker; how many there were to kill: 1 or 0."""
    try:
        family = psutil.Process(driver).children(recursive=True)
        workers = [each for each in family if "millwheel.engine.workers" in each.cmdline()]
        if not workers:
            return 0
        workers[turn % len(workers)].send_signal(signal.SIGKILL)
    except psutil.Error:
        return 0
    return 1


def check(out: Path, records: int) -> None:
    """Raises SystemExit unless every sink has every record once."""
    for number in range(MAPS):
        found = [row["n"] for row in _rows(out / f"m{number}")]
        if len(found) != records or len(set(found)) != records:
            raise SystemExit(
                f"m{number}: {len(found)} rows of {len(set(found))} records, not {records}"
            )
    for size in WINDOWS:
        if (counted := sum(row["count"] for row in _rows(out / f"w{size}"))) != records:
            raise SystemExit(f"w{size} counts {counted} records, not {records}")


def _rows(folder: Path) -> list[dict[str, int]]:
    return [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]


def _line(number: int) -> str:
    return (
        json.dumps(
            {"n": number, "k": number * 7919 % _KEYS, "ts": 1_700_000_000_000_000 + number * 10_000}
        )
        + "\n"
    )


def pipeline() -> str:
    """As YAML, with the parameters ``input`` and ``output``."""
    text = "pipeline: constant_kills\nstreams:\n  hits:\n"
    text += (
        "    source: {files: {path: '${input}', format: jsonl}}\n    timestamp: ts\ncomputations:\n"
    )
    names = [f"m{number}" for number in range(MAPS)] + [f"w{size}" for size in WINDOWS]
    for number in range(MAPS):
        text += (
            f"  c{number}: {{input: {{hits: {{key: k}}}}, map: {{n: n, k: k + {number}}}, output:"
            f" m{number}}}\n"
        )
    for size in WINDOWS:
        text += f"  t{size}: {{input: {{hits: {{key: k}}}}, window: {{tumbling: {size}}}, "
        text += f"aggregate: {{count: count}}, output: w{size}}}\n"
    text += "sinks:\n"
    for name in [*names, "hits", "dead_letters"]:
        text += f"  {name}: {{files: {{path: '${{output}}/{name}', format: jsonl}}}}\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
