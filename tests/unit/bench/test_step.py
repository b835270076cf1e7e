import subprocess
import sys

from bench.paths import HOUSE


def test_two_loops_in_turn_show_results_and_say_what_a_step_takes() -> None:
    command = [sys.executable, "-m", "bench", "step", "--cycles", "20", "--tries", "2"]
    done = subprocess.run(
        command, cwd=HOUSE, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("a step: ")
