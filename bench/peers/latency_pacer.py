"""Part C's source for peers that read a socket: lines of ``key created`` at a steady rate.
WARM_UP_S

Prints its port. To whoever connects it says records of key -1 for as long as the warm-up takes, so
that interpreters and classes are loaded; they are not part of the result. Created is when the
schedule says, not when this process woke.
"""

import os
import socket
import sys
import time

RATE, COUNT = float(os.environ["BENCH_RATE"]), int(os.environ["BENCH_COUNT"])
KEYS = 1_000


def main():
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(90)
        reader, _ = server.accept()
    with reader:
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        warm = time.time() + float(sys.argv[1])
        while time.time() < warm:
            reader.sendall(b"-1 0.0\n" * 10)
            time.sleep(0.1)
        pace(reader)


def pace(reader):
    began, sent = time.time(), 0
    while sent < COUNT:
        due = min(int((time.time() - began) * RATE), COUNT)
        if due > sent:
            lines = (f"{i % KEYS} {began + (i + 1) / RATE!r}\n" for i in range(sent, due))
            reader.sendall("".join(lines).encode())
            sent = due
        time.sleep(0.001)


main()
