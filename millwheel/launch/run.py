"""One run: it starts everything in order, watches until the work is done, and stops everything in
order.

    up:    ZooKeeper → master, injector → workers
    down:  master → workers → injector → ZooKeeper

The master stops first, so that it does not reassign the shards of leaving workers. Children die
with the thread that starts them, so one thread starts them all and outlives them. Clients of the
injector (over gRPC) start after the launcher: starting Spark's JVM forks, and a process that forks
while it uses gRPC can hang for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from rich.console import Console

from millwheel.adapters.clock import SystemClock
from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.grpc.security import is_loopback, load_security
from millwheel.adapters.metrics.otlp import OtlpMetrics, configured
from millwheel.adapters.ports import Coordination
from millwheel.adapters.processes.signals import StopSignals
from millwheel.adapters.processes.supervisor import Supervisor
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.adapters.waits import wait_for
from millwheel.control.roots.inputs import has_ends
from millwheel.control.roots.root import Root, RunInfo
from millwheel.control.savepoints.restore import write_tables
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.engine.letters import Replays
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.auto_spares import AutoSpares
from millwheel.launch.coordinator import Keeper, coordinator_for
from millwheel.launch.launchers.base import Launcher, WorkerTemplate
from millwheel.launch.launchers.processes import ProcessLauncher
from millwheel.launch.launchers.spark.launcher import SparkLauncher
from millwheel.launch.launchers.spark.settings import SparkSettings
from millwheel.launch.launchers.warm_children import Children, executed
from millwheel.launch.members import StopRequest, on_stop
from millwheel.launch.progress.catching_up import CatchingUp
from millwheel.launch.progress.failures import Failures
from millwheel.launch.progress.input_size import Estimate
from millwheel.launch.progress.line import ProgressLine
from millwheel.launch.progress.metrics import GatheredMetrics
from millwheel.launch.progress.report import Noting
from millwheel.launch.progress.standstill import ReasonsOfStandstill
from millwheel.launch.progress.status_watch import StatusWatcher
from millwheel.launch.progress.summary import Summary, summarize
from millwheel.launch.scale import Scaling, forget
from millwheel.launch.services import Services, ServiceTemplate
from millwheel.launch.settings import RunSettings
from millwheel.launch.watch import Deaths, Watch

_WORKER_GRACE_S = 12.0  # for workers to end in order, a last snapshot included
_SERVICE_GRACE_S = 5.0  # for master and injector to end in order
_OUTAGE_S = 60.0  # without ZooKeeper that the driver tolerates
_ROOM_S = 1.0  # between looks whether all workers have a place to run
# between looks for letters to replay, of a folder and of an object store
_REPLAYS_S = {False: 1.0, True: 10.0}


class Running:
    """One run on a prepared root. ``spec`` has its defaults. ``children`` starts processes on this
    machine; None: each is started with a command of its own. ``access`` is the folder with its
    token ("": it is open)."""

    def __init__(
        self,
        settings: RunSettings,
        spec: PipelineSpec,
        root: Root,
        console: Console,
        replays: Replays,
        children: Children | None,
        access: str = "",
    ) -> None:
        self._settings = settings
        self._access = access
        self._spec = spec
        self._root = root
        self._graph = build_graph(spec)
        self._replays = replays
        self._replays_due_s = 0.0
        self._room = wait_for("The run")
        self._room_due_s = 0.0
        self._line = ProgressLine(console)
        self._supervisor = Supervisor(self._line.announce)
        self._children = children
        self._services = Services(root.logs, executed if children is None else children.start)
        self._embedded: Keeper | None = None
        self._scaling: Scaling | None = None
        self._metrics: GatheredMetrics | None = None
        self._catching_up: CatchingUp | None = None
        self._dead = Deaths(HangNotes(open_space(root.address)), self._line.announce)
        self._standstill: ReasonsOfStandstill | None = None
        self.caught_up = False
        """Whether the run ended because it had caught up, not because its input had ended."""

    def run(self) -> Summary | None:
        """The summary once the input has drained, or the run has caught up; None when SIGINT or
        SIGTERM came first.

        Stops everything first, then raises SetupError when a process cannot be kept alive, or
        BrokenError when too many calls failed.
        """
        earlier = self._root.read_run()
        before_s = earlier.seconds if earlier else 0.0
        failures = Failures(self._graph, self._root.address, self._line.announce)
        parts = self._supervisor, self._services, self._line, self._root.logs, failures
        estimate = Estimate(self._spec)
        watch = Watch(
            self._spec.name, self._graph, *parts, estimate, self._settings.verbose, self._reasons
        )
        watch.noted = self._dead.ended
        with StopSignals() as signals, self._line:
            with ExitStack() as stack:  # undone from the last to the first, after errors too
                zookeeper = self._start_zookeeper(stack)
                self._claim(zookeeper)
                self._note(zookeeper, before_s)
                self._start_services(zookeeper, stack)
                self._catching_up = self._catch_up(zookeeper, stack)
                launcher = self._start_launcher(zookeeper, stack)
                signals.catch()
                watcher = self._start_watcher(zookeeper, stack, signals.requested.set)
                self._serve_metrics(watcher, stack)
                self._explain_standstill(watcher, stack)
                if self._catching_up is not None:
                    self._catching_up.start()
                self._open_endpoints()
                self._open_page()
                self._start_workers(launcher)
                began_s = time.monotonic()
                noting = Noting(
                    self._root.path,
                    self._spec.name,
                    self._graph,
                    self._restarts,
                    before_s,
                    estimate,
                )
                check = partial(self._check, watcher, launcher, noting)
                try:
                    caught_up = (
                        (lambda view: None) if self._catching_up is None else self._catching_up.view
                    )
                    view = watch.until_drained(
                        launcher, watcher, signals.requested, check, caught_up
                    )
                    self.caught_up = view is not None and not view.drained(self._graph)
                    self._replays.settle(view)
                finally:
                    seconds = before_s + time.monotonic() - began_s
                    self._note(zookeeper, seconds)
                self._line.show(f"{self._spec.name}: stopping", time.monotonic())
            if view is not None and not self.caught_up:
                self._forget_hangs()
            watch.pass_on_output()
        self._root.clear_scratch()
        return summarize(self._graph, view, seconds, self._restarts()) if view is not None else None

    # --- up, in this order ------------------------------------------------------------------------

    def _start_zookeeper(self, stack: ExitStack) -> str:
        self._embedded = coordinator_for(
            self._settings, self._root.path, self._line.announce, self._access
        )
        if self._embedded is None:
            return self._settings.zookeeper
        stack.callback(self._embedded.stop)
        return self._embedded.start()

    def _claim(self, zookeeper: str) -> None:
        """Check that root and ZooKeeper belong together. With tables of another root, or without
        tables for a used root, state would be lost.

        Raises SetupError when they do not belong together.
        """
        coordination = self._connect(zookeeper)
        try:
            instance = self._root.identity.instance.encode()
            stands = coordination.put_if_absent("instance", instance)
            if stands != instance:
                raise SetupError(
                    f"ZooKeeper at {zookeeper} coordinates another run of {self._spec.name!r} (root"
                    f" instance {stands.decode()}, ours is {instance.decode()}). Use another chroot"
                    " (--zookeeper host:port/chroot) or the root that belongs to it"
                )
            if self._root.used() and not coordination.tables():
                raise SetupError(
                    f"The root {self._root.address} holds journals, but ZooKeeper at {zookeeper}"
                    " has no range tables for it: its data was lost, or it is another server. Name"
                    " the one that this root was used with"
                )
            write_tables(self._root.path, coordination, list(map(NodeName, self._graph.nodes)))
        finally:
            coordination.close()

    def _note(self, zookeeper: str, seconds: float) -> None:
        """Record for tools and for the next run where this run is, and how long its work has taken
        so far."""
        identity = self._root.identity
        where = (zookeeper, os.getpid(), round(seconds, 3), self._access)
        self._root.write_run(RunInfo(identity.pipeline, identity.instance, *where))

    def _start_services(self, zookeeper: str, stack: ExitStack) -> None:
        template = ServiceTemplate(
            self._root.address,
            zookeeper,
            self._spec.name,
            self._settings.listen,
            self._access,
            self._settings.log_format,
        )
        counts = (
            "--workers",
            str(self._settings.workers),
            "--spares",
            str(self._settings.first_spares),
        )
        balance = ("--balance",) if self._settings.balance else ()
        master = "millwheel.control.master", template.arguments(*counts, *balance)
        injector = "millwheel.control.injector", template.arguments()
        stack.callback(self._services.stop, _SERVICE_GRACE_S)
        self._supervisor.keep("master", partial(self._services.start, "master", *master))
        self._supervisor.keep("injector", partial(self._services.start, "injector", *injector))

    def _start_launcher(self, zookeeper: str, stack: ExitStack) -> Launcher:
        launcher = self._launcher(zookeeper)
        stack.callback(launcher.stop, _WORKER_GRACE_S)
        stack.callback(self._services.stop_one, "master", _SERVICE_GRACE_S)
        return launcher

    def _catch_up(self, zookeeper: str, stack: ExitStack) -> CatchingUp | None:
        """The detector of a run that has caught up, if the run is to end then. It releases the
        shards once no worker is left to continue."""
        if not has_ends(self._root.path):
            return None
        detector = CatchingUp(self._graph, lambda: self._connect(zookeeper), SystemClock())
        stack.callback(detector.close)
        return detector

    def _start_watcher(
        self, zookeeper: str, stack: ExitStack, stop: Callable[[], None]
    ) -> StatusWatcher:
        security = load_security(self._access, "client")
        request = StopRequest(self._root.identity.instance, os.getpid())
        watcher = StatusWatcher(lambda: self._connect(zookeeper), security, on_stop(request, stop))
        stack.callback(watcher.stop)
        watcher.start()
        return watcher

    def _serve_metrics(self, watcher: StatusWatcher, stack: ExitStack) -> None:
        slots = [f"worker-{slot}" for slot in self._settings.slots]
        gathered = GatheredMetrics(
            self._spec.name, slots, watcher, self._restarts, self._root.path, self._deaths
        )
        stack.callback(gathered.close)
        self._metrics = gathered
        listen = self._settings.metrics_listen or self._settings.listen
        gathered.serve(listen, self._settings.metrics_port, self._access)
        if configured():
            export = OtlpMetrics(gathered.page, self._spec.name)
            export.start()
            stack.callback(export.close)  # before the workers end: it sends their last figures

    def _explain_standstill(self, watcher: StatusWatcher, stack: ExitStack) -> None:
        security = load_security(self._access, "client")
        self._standstill = ReasonsOfStandstill(
            self._graph, self._spec.name, self._root.path, watcher, security
        )
        stack.callback(self._standstill.stop)
        self._standstill.start()

    def _reasons(self) -> Sequence[str]:
        return () if self._standstill is None else self._standstill.reasons

    def _deaths(self) -> Sequence[str]:
        return self._supervisor.deaths(time.monotonic())

    def _open_endpoints(self) -> None:
        """Start the processes that accept posted records over HTTP. A run that only catches up has
        none."""
        for stream in self._spec.streams if self._catching_up is None else ():
            if (
                stream.source is not None
                and "port" in stream.source.options
                and stream.source.kind == "injection"
            ):
                security = ("--security", self._access) if self._access else ()
                argv = ["--root", str(self._root.path), "--stream", stream.name, *security]
                name = f"http {stream.name}"
                self._supervisor.keep(
                    name, partial(self._services.start, name, "millwheel.tools.http_source", argv)
                )

    def _open_page(self) -> None:
        """Start the process that serves the page of the run, if requested."""
        port, host = self._settings.ui_port, self._settings.ui_host
        if port is None:
            return
        security = ("--security", self._access) if self._access else ()
        argv = ["--root", str(self._root.path), "--port", str(port), "--host", host, *security]
        self._supervisor.keep(
            "page", partial(self._services.start, "page", "millwheel.tools.ui", argv)
        )
        credentials = load_security(self._access, "client")
        address = f"{host}:{port}"
        fragment = f"#token={credentials.proof(address)}" if credentials else ""
        self._line.announce(
            f"The page is at {'http' if is_loopback(host) else 'https'}://{address}/{fragment}"
        )

    def _start_workers(self, launcher: Launcher) -> None:
        def begin(slot: int) -> None:
            self._supervisor.keep(f"worker {slot}", partial(launcher.start, slot))

        for slot in self._settings.slots:
            begin(slot)
        slots, spares, announce = (
            self._settings.slots,
            self._settings.first_spares,
            self._line.announce,
        )
        most = launcher.most
        auto = AutoSpares(most) if self._settings.spares == "auto" else None
        forget(self._root.path)
        self._scaling = Scaling(
            self._root.path, slots, spares, begin, self._supervisor, announce, most, auto
        )

    def _launcher(self, zookeeper: str) -> Launcher:
        settings, root = self._settings, self._root
        spark = SparkSettings(
            master=settings.spark_master,
            slots=len(settings.slots),
            app_name=f"millwheel {self._spec.name}",
            scratch=str(root.scratch),
            log=str(root.logs / "spark.log"),
            submitted=settings.submitted,
            conf=settings.conf,
            room=settings.room,
            secured=bool(settings.security),
        )
        template = WorkerTemplate(
            root=root.address,
            zookeeper=zookeeper,
            pipeline=self._spec.name,
            logs=root.logs_of_workers(far=settings.far),
            scratch="" if settings.far else str(root.scratch),
            module=settings.worker_module,
            listen=settings.listen,
            security=self._access,
            secrets=settings.secrets,
            log_format=settings.log_format,
            query_port=settings.query_port,
        )
        if self._children is not None:
            return ProcessLauncher(template, self._children.start)
        return SparkLauncher(template, spark, root.orders, self._line.announce)

    # --- while it runs ----------------------------------------------------------------------------

    def _connect(self, zookeeper: str) -> Coordination:
        """A session that survives a restart of ZooKeeper: the driver owns nothing that others could
        take."""
        security = self._access
        return open_coordination(
            zookeeper, self._spec.name, lost_after_s=_OUTAGE_S, security=security
        )

    def _check(self, watcher: StatusWatcher, launcher: Launcher, noting: Noting) -> None:
        self._root.check()
        noting.step(watcher.latest, time.monotonic())
        self._look_at_replays(watcher)
        if self._metrics is not None:
            self._metrics.step()
        if self._scaling is not None:
            self._scaling.step(time.monotonic(), watcher, launcher)
        if self._embedded is not None:
            self._embedded.check()
        self._look_at_room(launcher)

    def _look_at_room(self, launcher: Launcher) -> None:
        """Check whether Spark has room for all workers; a lack of room is shown with the other
        waits of the run."""
        now_s = time.monotonic()
        if now_s < self._room_due_s:
            return
        self._room_due_s = now_s + _ROOM_S
        if lacking := launcher.lacks():
            self._room.noted(lacking)
        else:
            self._room.over()

    def _look_at_replays(self, watcher: StatusWatcher) -> None:
        """Write the orders for replays that are requested during the run. If the root does not
        answer, try again later."""
        now_s = time.monotonic()
        if now_s < self._replays_due_s:
            return
        self._replays_due_s = now_s + _REPLAYS_S[in_bucket(self._root.address)]
        with suppress(UnavailableError):
            self._replays.bind()
            self._replays.settle(watcher.latest)

    def _forget_hangs(self) -> None:
        """Delete the notes about callbacks that did not return: all input is processed and no
        worker is left, so they have no effect."""
        try:
            HangNotes(open_space(self._root.address)).clear(self._graph.nodes)
        except (UnavailableError, SetupError) as error:
            self._line.announce(
                f"Notes about callbacks that did not return are left, and do nothing: {error}"
            )

    def _restarts(self) -> dict[str, int]:
        restarts = self._supervisor.restarts()
        if self._embedded is not None and self._embedded.restarts:
            restarts["zookeeper"] = self._embedded.restarts
        return restarts
