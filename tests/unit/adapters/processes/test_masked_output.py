"""What C code writes is masked on its way into a log, and nothing of it is lost at an orderly
end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import os, subprocess, sys
from millwheel.adapters.processes.output import LogFiles
from millwheel.adapters.secret_values import (
    MaskingStream, masked_bytes, masking, revealed, on_first_secret,
)
from millwheel.adapters.secret_values import Secret

logs = LogFiles()
sys.stderr = masking(sys.stderr)

def mask():
    sys.stderr.flush()
    sys.stderr.stream = open(logs.behind_a_mask(2, masked_bytes), "w", buffering=1)

on_first_secret(mask)
os.write(2, b"before\\n")
revealed({"a": Secret("${secret:API_TOKEN}")})
os.write(2, b"C says t0ken-")
os.write(2, b"of-the-api\\n")
subprocess.run(["sh", "-c", "echo child says $API_TOKEN >&2"])
print("Python says", os.environ["API_TOKEN"], file=sys.stderr)
os.write(2, b"x" * 300_000 + b"\\nlast words without an end")
logs.drained()
os._exit(0)
"""


def test_what_c_code_and_children_write_is_masked(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    with log.open("ab") as file:
        environment = {**os.environ, "API_TOKEN": "t0ken-of-the-api"}
        done = subprocess.run(
            [sys.executable, "-c", CODE], stderr=file, env=environment, timeout=60
        )
    assert done.returncode == 0
    text = log.read_text()
    assert "t0ken" not in text
    for line in (
        "before\n",
        "C says ***\n",
        "child says ***\n",
        "Python says ***\n",
        "\nlast words without an end",
    ):
        assert line in text
    assert "x" * 300_000 in text
