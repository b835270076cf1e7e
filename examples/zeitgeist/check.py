"""Runs the zeitgeist pipeline and scores its alerts against the labelled anomaly windows.

python examples/zeitgeist/check.py [--launcher spark|processes] [--fresh]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).parent
OUT = Path("out") / "zeitgeist"
HOUR_US = 3_600_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", default="spark")
    parser.add_argument(
        "--fresh", action="store_true", help="forget what an earlier run left in out/zeitgeist"
    )
    given = parser.parse_args()
    if given.fresh:
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(HERE / "pipeline.yaml"),
        "--launcher",
        given.launcher,
    ]
    command += [
        "--set",
        f"output={OUT}",
        "--root",
        str(OUT / "root"),
        "--summary",
        str(OUT / "summary.json"),
    ]
    if subprocess.run(command, check=False).returncode:
        return 1
    hit, labelled, stray, alerts = score(OUT / "alerts")
    print(
        f"{hit} of {labelled} labelled anomaly windows have an alert; {stray} of {alerts} alerts"
        " lie outside of any."
    )
    return 0


def score(folder: Path) -> tuple[int, int, int, int]:
    """(labelled windows with an alert, labelled windows, alerts outside of any, alerts)."""
    windows = {
        series: [(micros(begin), micros(end)) for begin, end in spans]
        for series, spans in json.loads(
            (HERE / "data" / "anomaly_windows.json").read_text()
        ).items()
    }
    alerts = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.open()]
    found = {
        (a["series"], span)
        for a in alerts
        for span in windows[a["series"]]
        if touches(a["window_start"], span)
    }
    stray = sum(
        not any(touches(a["window_start"], span) for span in windows[a["series"]]) for a in alerts
    )
    return len(found), sum(map(len, windows.values())), stray, len(alerts)


def touches(hour_us: int, span: tuple[int, int]) -> bool:
    """Whether an hour overlaps a labelled span."""
    return hour_us + HOUR_US > span[0] and hour_us <= span[1]


def micros(text: str) -> int:
    """µs UTC of a label's time."""
    return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
