"""A followed file at a steady rate: memory of the workers and size of the root, sampled while it
goes on.

    python -m bench soak [--minutes 10] [--rate 20000] [--folder DIR]

Prints one JSON line per sample and a last one with the first and second half compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

PIPELINE = """
pipeline: soak
streams:
  events:
    source: {files: {path: "${input}", format: jsonl, follow: true}}
    timestamp: {field: ts, unit: ms}
    id: {field: id, horizon: 10s}
    watermark: {max_delay: 1s}
computations:
  totals:
    input: {events: {key: key}}
    window: {tumbling: 10s}
    aggregate: {count: count, sum: {sum: value}}
    output: totals
sinks:
  totals: {files: {path: "${output}", format: jsonl}}
"""


def write(path: Path, rate: int, stop: threading.Event) -> None:
    """Append ``rate`` records a second, event time being the wall clock, until told to stop."""
    rng, number = random.Random(1), 0
    started = time.time()
    with path.open("a", buffering=1 << 16) as out:
        while not stop.is_set():
            now = time.time()
            due = int((now - started) * rate)
            stamp = int(now * 1000)
            out.write(
                "".join(
                    f'{{"id":"{i}","key":{rng.randrange(1000)},"value":{i % 100},'
                    f'"ts":{stamp - rng.randrange(500)}}}\n'
                    for i in range(number, due)
                )
            )
            out.flush()
            number = due
            stop.wait(0.05)


def size_of(folder: Path) -> int:
    """Bytes below a folder; files may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def sample(run: subprocess.Popen[bytes], root: Path) -> dict[str, dict[str, float]]:
    """Memory of each worker (MB), and disk by part of the root (MB)."""
    memory = {}
    for child in psutil.Process(run.pid).children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            if "millwheel.engine.workers" in line and "lifeline" not in line:
                memory[f"worker {line.split('--slot ')[1].split()[0]}"] = round(
                    child.memory_info().rss / 1e6, 1
                )
        except (psutil.Error, IndexError):
            pass
    parts = {
        part: round(size_of(root / part) / 1e6, 1)
        for part in ("journal", "snapshots", "scratch", "zookeeper", "logs")
    }
    return {"rss_mb": memory, "disk_mb": parts}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--folder", default="")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "events.jsonl").touch()
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(folder / "events.jsonl", arguments.rate, stop))
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(folder / "pipeline.yaml"),
        "--launcher",
        "processes",
    ]
    command += [
        "--set",
        f"input={folder / 'events.jsonl'}",
        "--set",
        f"output={folder / 'out'}",
        "--root",
        str(folder / "root"),
    ]
    with (folder / "said.txt").open("wb") as said:
        run = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    writer.start()
    samples = []
    try:
        started = time.monotonic()
        while run.poll() is None and time.monotonic() - started < arguments.minutes * 60:
            time.sleep(10)
            samples.append(
                {"second": round(time.monotonic() - started), **sample(run, folder / "root")}
            )
            print(json.dumps(samples[-1]), flush=True)
    finally:
        stop.set()
        writer.join()
        run.send_signal(signal.SIGINT)
        run.wait(60)
    print(
        json.dumps({"compared": compare(samples), "said": (folder / "said.txt").read_text()[-600:]})
    )
    return 0


def compare(samples: list[dict[str, object]]) -> dict[str, object]:
    """The highest figures of the second and of the last quarter: flat means alike."""

    def highest(part: list[dict[str, object]]) -> dict[str, float]:
        memory = [max(s["rss_mb"].values(), default=0) for s in part]  # type: ignore[attr-defined]
        disk = [sum(s["disk_mb"].values()) for s in part]  # type: ignore[attr-defined]
        return {"rss_mb": max(memory, default=0), "disk_mb": round(max(disk, default=0), 1)}

    quarter = max(1, len(samples) // 4)
    return {
        "second_quarter": highest(samples[quarter : 2 * quarter]),
        "last_quarter": highest(samples[-quarter:]),
    }


if __name__ == "__main__":
    sys.exit(main())
