"""Runs a bytewax program as one process or as a cluster of several, with snapshots: PROGRAM
PROCESSES SNAPSHOT_S."""

import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main():
    program, processes, snapshot_s = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.makedirs("recovery")
    subprocess.run(
        [sys.executable, "-m", "bytewax.recovery", "recovery", str(processes)], check=True
    )
    command = [
        sys.executable,
        "-m",
        "bytewax.run",
        f"{program}:flow",
        "-r",
        "recovery",
        "-s",
        snapshot_s,
        "-b",
        "0",
    ]
    if processes == 1:
        return subprocess.run(command).returncode
    addresses = ";".join(f"127.0.0.1:{free_port()}" for _ in range(processes))
    running = [
        subprocess.Popen([*command, "-i", str(number), "-a", addresses])
        for number in range(processes)
    ]
    return max(abs(process.wait()) for process in running)


if __name__ == "__main__":
    sys.exit(main())
