from __future__ import annotations

import subprocess
import sys


def test_a_process_that_leaves_has_written_all_and_ends_at_once_with_its_code() -> None:
    code = (
        "import atexit, sys, threading; from millwheel.processes.exits import leave; "
        "atexit.register(print, 'took itself apart'); "
        "threading.Thread(target=threading.Event().wait).start(); "
        "print('out'); sys.stderr.write('err'); leave(64)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (64, "out\n", "err")
