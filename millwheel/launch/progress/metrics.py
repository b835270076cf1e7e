"""The metrics of a whole run on one port of the driver, and the addresses at which its processes
serve theirs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.metrics.client import METRICS, STANDING, fetched
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.text import merged, text_of
from millwheel.adapters.processes.address import AUTO, LOOPBACK
from millwheel.adapters.waits import waiting
from millwheel.control.roots.root import write_atomically
from millwheel.core.metrics import CERTIFICATES_END, PROCESS_UP, RESTARTS, RUN_SECONDS, Figure
from millwheel.launch.progress.status_watch import StatusWatcher

DRIVER = "driver"
_STILL_S = 120.0
"""Without a step for this long, the driver's loop hangs: the wait for a lost coordinator is half as
long."""
METRICS_FILE = "metrics.json"
"""In the root, in the format of Prometheus' ``file_sd_configs``: the driver first, then each
process."""


def driver_address(root: Path) -> str:
    """The address at which the driver of a root's run serves the metrics of all processes; "" if it
    does not (yet)."""
    try:
        targets = msgspec.json.decode((root / METRICS_FILE).read_bytes())
    except FileNotFoundError:
        return ""
    return str(targets[0]["targets"][0])


class GatheredMetrics:
    """Collects the metrics of every process on each request. ``slots`` are the expected workers;
    ``restarts`` returns how often each process was restarted, ``deaths`` which have failed
    recently, in words. The driver's loop calls :meth:`step`; all other methods run on other
    threads."""

    def __init__(
        self,
        pipeline: str,
        slots: Sequence[str],
        watcher: StatusWatcher,
        restarts: Callable[[], Mapping[str, int]],
        root: Path,
        deaths: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._deaths = deaths
        self._pipeline = pipeline
        self._expected = ("master", "injector", *slots)
        self._watcher = watcher
        self._restarts = restarts
        self._file = root / METRICS_FILE
        self._security: Security | None = None
        self._endpoint: Endpoint | None = None
        self._began_s = self._stepped_s = time.monotonic()
        self._written: Mapping[str, str] = {}
        self._addresses: dict[str, str] = {}

    def serve(self, listen: str, port: int, security: str) -> None:
        """Start serving. ``security`` is the security folder of the run, or "". Raises SetupError
        when the port is taken."""
        self._security = load_security(security, "client")
        secured = load_security(security, "process")
        host = LOOPBACK if listen == AUTO else listen
        pages = {METRICS: self.page, STANDING: self.standing}
        self._endpoint = Endpoint(f"{host}:{port}", secured, pages, self.healthy, self.ready)
        self._endpoint.start()
        self.step()

    def close(self) -> None:
        """Stop serving, and record that in the root."""
        if self._endpoint is not None:
            self._endpoint.close()
            self._file.unlink(missing_ok=True)

    def step(self) -> None:
        """Write the addresses of all processes to the root when they have changed. The address of a
        lost worker stays until another worker has its slot, so that monitoring shows that it does
        not answer."""
        assert self._endpoint is not None
        self._stepped_s = time.monotonic()
        for worker in list(self._watcher.members.values()):
            self._addresses[f"worker-{worker.slot}"] = worker.metrics
        now = {DRIVER: self._endpoint.address, **self._watcher.services, **self._addresses}
        if now != self._written:
            self._written = now
            targets = [
                _target(self._pipeline, name, address) for name, address in now.items() if address
            ]
            write_atomically(
                self._file, msgspec.json.format(msgspec.json.encode(targets), indent=1)
            )

    def healthy(self) -> str:
        """The reason to restart the driver; "" if there is none."""
        still_s = time.monotonic() - self._stepped_s
        return (
            f"the driver's loop has stood still for {still_s:.0f} s" if still_s > _STILL_S else ""
        )

    def ready(self) -> str:
        """The reason why records cannot be processed yet; "" if they can."""
        there = {f"worker-{worker.slot}" for worker in list(self._watcher.members.values())} | {
            *self._watcher.services
        }
        missing = [name for name in self._expected if name not in there]
        if missing:
            return f"not there: {', '.join(missing)}"
        view = self._watcher.latest
        if view is None:
            return "the injector has not answered yet"
        silent = [name for name, node in sorted(view.nodes.items()) if not node.complete]
        return f"shards have not reported: {', '.join(silent)}" if silent else ""

    def page(self) -> bytes:
        """The metrics of all processes, as text."""
        addresses = {
            name: address for name, address in self._written.items() if name != DRIVER and address
        }
        texts = fetched(addresses, METRICS, self._security)
        own = text_of(self._own(texts), {"pipeline": self._pipeline, "process": DRIVER}).decode()
        return merged([own, *texts.values()]).encode()

    def standing(self) -> bytes:
        """The driver's waits, failed processes, and the number of late records in the last hour, as
        JSON in the form of a worker's standing."""
        late = self._watcher.late.streams()
        return msgspec.json.encode({"waits": waiting(), "deaths": self._deaths(), "late": late})

    def _own(self, answered: Mapping[str, str]) -> Iterator[Figure]:
        members = dict.fromkeys(
            (*self._expected, *(name for name in self._written if name != DRIVER))
        )
        for name in members:
            yield Figure(PROCESS_UP, float(name in answered), (name,))
        restarts = {name.replace(" ", "-"): count for name, count in self._restarts().items()}
        for name in members | restarts:
            yield Figure(RESTARTS, restarts.get(name, 0), (name,))
        yield Figure(RUN_SECONDS, time.monotonic() - self._began_s)
        if self._security is not None and self._security.tls is not None:
            yield Figure(CERTIFICATES_END, self._security.tls.current().ends().timestamp())


def _target(pipeline: str, name: str, address: str) -> dict[str, object]:
    return {
        "targets": [address],
        "labels": {"millwheel_pipeline": pipeline, "millwheel_process": name},
    }
