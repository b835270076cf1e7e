"""The master's lines to its workers: reports in, and the death of a process noticed within
milliseconds.

When a process is killed, the kernel closes its sockets: the line breaks, and a new connection is
refused. Only that refusal counts as death. A line that breaks and can be made again was a
time-out.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import grpc

from millwheel.adapters.grpc.channels import new_channel
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.adapters.pb.worker_pb2_grpc import WorkerStub
from millwheel.core.model.names import WorkerName

# to connect to a worker's port; the attempt shows at once whether the worker lives
_PROBE_TIMEOUT_S = 1.0
_BACK_OFF_S = (0.005, 0.5)  # first and longest pause before a worker is attached again

OnReport = Callable[[WorkerName, pb.WorkerReport], None]
OnDead = Callable[[WorkerName, str], None]


class WorkerLines:
    """One line per attached worker. ``on_report`` and ``on_dead(incarnation, reason)`` come on
    threads of the lines and must only enqueue; a line that reported a death is silent from then
    on."""

    def __init__(
        self, master: str, on_report: OnReport, on_dead: OnDead, security: Security | None = None
    ) -> None:
        self._security = security
        self._master = master
        self._on_report = on_report
        self._on_dead = on_dead
        self._lines: dict[WorkerName, _Line] = {}

    def attach(self, incarnation: WorkerName, address: str) -> None:
        """Make a line and keep it."""
        self.detach(incarnation)
        line = self._lines[incarnation] = _Line(
            address,
            self._master,
            lambda report: self._on_report(incarnation, report),
            lambda reason: self._on_dead(incarnation, reason),
            self._security,
        )
        line.start()

    def detach(self, incarnation: WorkerName) -> None:
        """Close a line, if there is one."""
        line = self._lines.pop(incarnation, None)
        if line is not None:
            line.close()

    def close(self) -> None:
        """Close all lines."""
        for incarnation in list(self._lines):
            self.detach(incarnation)


class _Line:
    """A thread that listens to one worker."""

    def __init__(
        self,
        address: str,
        master: str,
        on_report: Callable[[pb.WorkerReport], None],
        on_dead: Callable[[str], None],
        security: Security | None,
    ) -> None:
        self._security = security
        self._address = address
        self._master = master
        self._on_report = on_report
        self._on_dead = on_dead
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"line-{address}")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._channel is not None:
                self._channel.close()

    def _keep(self) -> None:
        pause_s = _BACK_OFF_S[0]
        while not self._closed.is_set():
            if self._listen():
                pause_s = _BACK_OFF_S[0]
            if self._closed.is_set():
                return
            if _is_refused(self._address):
                self._on_dead(f"nothing listens at {self._address} any more")
                return
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, _BACK_OFF_S[1])

    def _listen(self) -> bool:
        """Receive from the worker until the line breaks; whether anything arrived."""
        with self._lock:
            if self._closed.is_set():
                return False
            channel = self._channel = new_channel(self._address, self._security)
        received = False
        try:
            for report in WorkerStub(channel).Attach(pb.AttachRequest(master=self._master)):
                received = True
                self._on_report(report)
        except (grpc.RpcError, ValueError):
            pass  # the line broke, or the channel was closed meanwhile; the probe decides which
        finally:
            channel.close()
        return received


def _is_refused(address: str) -> bool:
    """Whether the machine answers that the port is closed."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
