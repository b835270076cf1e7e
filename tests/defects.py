"""``python -m tests.defects FOLDER``: run the scripts that showed the defects of November 2026,
each as it is.

They are kept outside of the repository, and some reach into modules by the names that these had
then. Here each such name leads to where its code is now. Says which script prints ``ok`` alone; the
exit code is 1 unless all do.
"""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

MODULES = {
    "millwheel.core.codec": "millwheel.core.formats.codec",
    "millwheel.core.layout": "millwheel.core.formats.store_layout",
    "millwheel.core.ranges": "millwheel.core.model.ranges",
    "millwheel.core.records": "millwheel.core.model.records",
    "millwheel.core.table": "millwheel.core.model.range_table",
    "millwheel.testing.memory_cluster": "millwheel.tools.testing.memory.cluster",
    "millwheel.workers.background": "millwheel.workers.threads.journal",
    "millwheel.workers.bundles": "millwheel.workers.shard.admission",
    "millwheel.workers.inbox": "millwheel.workers.delivery.inbox",
    "millwheel.workers.journal_reads": "millwheel.workers.recovery.journal_reads",
    "millwheel.workers.outbox": "millwheel.workers.delivery.outbox",
}
"""Then and now."""
NAMES = {
    ("millwheel.workers.delivery.inbox", "Verdict"): "DeliveryOutcome",
    ("millwheel.workers.delivery.outbox", "Chunk"): "OutputChunk",
}
"""Names in today's modules, then and now."""


def install() -> None:
    """Let the old names lead to the code."""
    for (module, then), now_us in NAMES.items():
        found = importlib.import_module(module)
        setattr(found, then, getattr(found, now_us))
    for then, now_us in MODULES.items():
        sys.modules[then] = importlib.import_module(now_us)
        parent, _, name = then.rpartition(".")
        setattr(importlib.import_module(parent), name, sys.modules[then])
    package: ModuleType = importlib.import_module("millwheel.workers.recovery")
    recovery = importlib.import_module("millwheel.workers.recovery.recovery")
    for name in ("recover", "last_commit"):
        setattr(package, name, getattr(recovery, name))


def main(folder: str) -> int:
    """Run all scripts of a folder, one after the other; 1 unless each prints ``ok`` alone."""
    bad = 0
    for script in sorted(Path(folder).glob("*.py")):
        done = subprocess.run(
            [sys.executable, "-m", "tests.defects", "--one", str(script)],
            capture_output=True,
            text=True,
        )
        lines = [line for line in done.stdout.splitlines() if line]
        good = done.returncode == 0 and all(line.startswith("ok ") for line in lines)
        bad += not good
        print(f"{'ok    ' if good else 'NOT OK'} {script.name}: {len(lines)} cases", flush=True)
        if not good:
            print(done.stdout + done.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        install()
        runpy.run_path(sys.argv[2], run_name="__main__")
    else:
        sys.exit(main(sys.argv[1]))
