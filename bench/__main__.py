"""``python -m bench [NAME] [options]``: run one part or tool; without a name, all parts.

python -m bench --list                what there is
python -m bench A --runs 5            one part
python -m bench C --ours-only         without peers
python -m bench A --peers bytewax     with some; "flink thread" is "flink, thread mode"
python -m bench A --quick             a proof that it works, in a minute; its figures mean nothing
python -m bench A --resume            go on with a campaign that was interrupted
python -m bench profile --help        a tool has options of its own
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
from bench.tools import TOOLS


def main(arguments: list[str]) -> int:
    # Where it is set, each start of a process compiles all modules anew: 0.4 to 0.8 s of CPU that a
    # figure would show.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments and arguments[0] in TOOLS:
        sys.argv = [f"python -m bench {arguments[0]}", *arguments[1:]]
        return int(importlib.import_module(TOOLS[arguments[0]].module).main() or 0)
    options = _parser().parse_args(arguments)
    if options.list:
        print(*(f"{letter:15} {part.title}" for letter, part in PARTS.items()), sep="\n")
        print(*(f"{name:15} {tool.title}" for name, tool in TOOLS.items()), sep="\n")
        return 0
    wanted = Wanted(
        runs=1 if options.quick and options.runs is None else options.runs or 5,
        quick=options.quick,
        ours_only=options.ours_only,
        peers=tuple(name for name in options.peers.split(",") if name),
        resume=options.resume,
        keep=options.keep,
        results=options.results,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if not _alone():
        print(
            "Another campaign runs on this machine: the two would disturb each other. Wait for it.",
            file=sys.stderr,
        )
        return 2
    bad = [
        figure
        for name in options.names or PARTS
        for figure in PARTS[name].run(wanted)
        if figure.correct is False
    ]
    return 1 if bad else 0


def _alone() -> bool:
    """Hold the cache's lock until this process ends; False when another one has it. The clock
    depends on it, too: it starts when anybody opens the input."""
    path = cache() / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], metavar="NAME")
    parser.add_argument(
        "--list", action="store_true", help="all parts, how long they take, and all tools"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small input, one run, figures kept apart"
    )
    parser.add_argument(
        "--runs", type=int, help="rounds, every contestant once in each (default 5)"
    )
    parser.add_argument("--peers", default="", help="only these, separated by commas")
    parser.add_argument("--ours-only", action="store_true", help="no peers, no limits")
    parser.add_argument(
        "--resume", action="store_true", help="add what the last campaign of the part lacks"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folders of runs, in the cache"
    )
    parser.add_argument("--results", type=Path, help="another file of figures")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
