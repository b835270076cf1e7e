"""``python -m bench [NAME] [options]``: run one part or tool; without a name, all parts.

python -m bench A --runs 5            one part: A to H (list: python -m bench --list)
python -m bench C --ours-only         without peers
python -m bench A --peers bytewax     with some; "flink thread" is "flink, thread mode"
python -m bench A --quick             a proof that it works, in a minute; its figures mean nothing
python -m bench A --resume            go on with a campaign that was interrupted
python -m bench report                tables and plots of docs/performance.md from the figures
python -m bench profile B             where a microsecond goes
python -m bench key_windows, soak, failover, availability, nodes, start   with options of their own
python -m bench scale                 A, B and many nodes on 1 to 16 workers: what does not grow with the machine
python -m bench cluster               1,000 workers and 100,000 shards against master and injector, without records
python -m bench pace                  what latency: greedy, balanced, 2ms and 20ms cost and save
python -m bench step                  the CPU of a step of few records, two loops in one process: also on busy machines
python -m bench constant_kills        13 computations and 15 sinks while a worker is killed every five seconds
python -m bench metrics_cost, tracing_cost   what metrics and traces cost a worker
python -m bench query_faults, query_storm   queries while workers fail; what they cost the stream
python -m bench query_keys               ten million keys at rest: memory, disk, and how fast they answer
python -m bench S                     groupings under skew, simulated: the table and the picture of docs/skew.md
python -m bench Q                     the published experiments with queries, beside Redis itself (--only Q1 Q4)
python -m bench hot_key               unequal keys beside even ones: one with 90 % of the records, or Zipf; divided too
python -m bench unequal               groupings on two workers, one of which runs a quarter of the time
python -m bench dividing              what it costs a source to choose the instances of keys
python -m bench cliff                 one step beside the plain pipeline: each kind of window, key, aggregate, input
python -m bench uv                    unique visitors: text, dictionary and bitmaps, and a sketch side by side
python -m bench uv_opened             one shard of a dictionary: a new device, a known one, opening it
python -m bench rivals                key windows and their rivals: native, raw, bucketed, as published
python -m bench redis_price           what a batch of rows costs in a real Redis
python -m bench ads_kafka, kafka_rates, kafka_latency, debezium           the same, beside a real broker
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import os
import signal
import sys
from pathlib import Path

from bench.parts import PARTS
from bench.paths import cache
from bench.rounds import Wanted

TOOLS = (
    "ads_kafka",
    "kafka_latency",
    "kafka_rates",
    "key_windows",
    "soak",
    "failover",
    "availability",
    "nodes",
    "metrics_cost",
    "tracing_cost",
    "debezium",
    "profile",
    "query_faults",
    "query_storm",
    "query_keys",
    "Q",
    "report",
    "start",
    "S",
    "scale",
    "pace",
    "step",
    "cluster",
    "hot_key",
    "unequal",
    "dividing",
    "cliff",
    "uv",
    "uv_opened",
    "rivals",
    "redis_price",
    "constant_kills",
)
_MODULES = {"S": "skew", "scale": "scaling", "Q": "query_figures"}


def main(arguments: list[str]) -> int:
    # Where it is set, each start of a process compiles all modules anew: 0.4 to 0.8 s of CPU that a figure would show.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments and arguments[0] in TOOLS:
        sys.argv = [f"python -m bench {arguments[0]}", *arguments[1:]]
        module = _MODULES.get(arguments[0], arguments[0])
        return int(importlib.import_module(f"bench.{module}").main() or 0)
    given = _parser().parse_args(arguments)
    if given.list:
        print(*(f"{letter}  {part.title}" for letter, part in PARTS.items()), sep="\n")
        return 0
    wanted = Wanted(
        runs=1 if given.quick and given.runs is None else given.runs or 5,
        quick=given.quick,
        ours_only=given.ours_only,
        peers=tuple(name for name in given.peers.split(",") if name),
        resume=given.resume,
        keep=given.keep,
        results=given.results,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if not _alone():
        print("Another campaign runs on this machine: the two would disturb each other. Wait for it.", file=sys.stderr)
        return 2
    bad = [figure for name in given.names or PARTS for figure in PARTS[name].run(wanted) if figure.correct is False]
    return 1 if bad else 0


def _alone() -> bool:
    """Hold the cache's lock until this process ends; False when another one has it. The clock depends on it, too:
    it starts when anybody opens the input."""
    path = cache() / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="what the parts are, and how long they take")
    parser.add_argument("--quick", action="store_true", help="small input, one run, figures kept apart")
    parser.add_argument("--runs", type=int, help="rounds, every contestant once in each (default 5)")
    parser.add_argument("--peers", default="", help="only these, separated by commas")
    parser.add_argument("--ours-only", action="store_true", help="no peers, no limits")
    parser.add_argument("--resume", action="store_true", help="add what the last campaign of the part lacks")
    parser.add_argument("--keep", action="store_true", help="keep the folders of runs, in the cache")
    parser.add_argument("--results", type=Path, help="another file of figures")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
