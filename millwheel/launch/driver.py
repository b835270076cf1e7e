"""One run of a pipeline from the person's side: prepare the root, start everything, watch, stop, sum up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console

from millwheel.adapters.zookeeper import ZooKeeperCoordination
from millwheel.core.graph import Graph, build_graph
from millwheel.core.spec import PipelineSpec
from millwheel.errors import SetupError
from millwheel.launch.base import Launcher, WorkerTemplate
from millwheel.launch.inputs import changed_inputs, keep_inputs
from millwheel.launch.processes import ProcessLauncher
from millwheel.launch.progress import ProgressLine, RateMeter, progress_text
from millwheel.launch.root import Root, RunInfo, write_atomically
from millwheel.launch.services import Services, ServiceTemplate, ZooKeeperKeeper
from millwheel.launch.shipped import load_shipped, with_defaults
from millwheel.launch.shipping import ship
from millwheel.launch.spark import SparkLauncher, SparkSettings
from millwheel.launch.summary import Summary, summarize, total
from millwheel.launch.supervisor import Ended, Supervisor
from millwheel.launch.watching import StatusWatcher
from millwheel.sinks import build_sink
from millwheel.spec import load_pipeline, resolve_params

_STEP_S = 0.1
_GRACE_S = 15.0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a person asked for. ``root`` "" is ``.millwheel/<pipeline>`` below the current folder."""

    pipeline: str
    params: dict[str, str] = field(default_factory=dict)
    workers: int = 2
    launcher: str = "spark"
    spark_master: str = ""
    submitted: bool = False
    root: str = ""
    zookeeper: str = ""
    summary: str = ""


@dataclass(slots=True)
class _Run:
    """What one run is made of, once it has started."""

    root: Root
    spec: PipelineSpec
    graph: Graph
    zookeeper: str
    keeper: ZooKeeperKeeper | None
    services: Services
    launcher: Launcher
    supervisor: Supervisor
    watcher: StatusWatcher


class Driver:
    """Runs one pipeline. ``console`` gets progress and sentences."""

    def __init__(self, settings: RunSettings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._stop_asked = False
        self._started_s = time.monotonic()

    def run(self) -> int:
        """Until bounded input is drained or somebody stops it; the exit code. Raises MillwheelError with a sentence."""
        spec = self._validated()
        root = Root.open(self._settings.root or str(Path(".millwheel") / spec.name), spec.name)
        try:
            return self._run_in(root, with_defaults(spec, str(root.path)))
        finally:
            root.close()

    def _validated(self) -> PipelineSpec:
        path = self._settings.pipeline
        if not Path(path).is_file():
            raise SetupError(f"There is no pipeline file {path}; give the path of a YAML file.")
        return load_pipeline(path, resolve_params(path, self._settings.params, os.environ, os.getcwd()))

    def _run_in(self, root: Root, spec: PipelineSpec) -> int:
        done = root.completed()
        if done is not None:
            return self._already(root, spec, done)
        for sink in spec.sinks:
            build_sink(sink, spec.folder).check(str(root.identity))
        bounded = keep_inputs(spec, root.path)
        ship(Path(self._settings.pipeline), self._settings.params, root.path)
        graph = build_graph(load_shipped(str(root.path)))
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with ProgressLine(self._console) as line:
                return self._supervise(root, spec, graph, bounded, line)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _already(self, root: Root, spec: PipelineSpec, done: object) -> int:
        changed = changed_inputs(spec, root.path)
        if changed:
            raise SetupError(
                f"The run in {root.path} has processed all of its input, and now {'; '.join(changed)}. "
                "Choose a new --root for new input."
            )
        self._console.print(f"The run in {root.path} was complete already; nothing was done. Its summary:", highlight=False)
        self._finish(msgspec.convert(done, Summary), root)
        return 0

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop_asked = True

    # --- start and stop ----------------------------------------------------------------------------------

    def _supervise(self, root: Root, spec: PipelineSpec, graph: Graph, bounded: bool, line: ProgressLine) -> int:
        keeper = None if self._settings.zookeeper else ZooKeeperKeeper(root.path / "zookeeper", line.say)
        services = Services(root.logs)
        stops: list[Callable[[], None]] = []
        try:
            zookeeper = self._settings.zookeeper or (keeper.start() if keeper is not None else "")
            stops.append(keeper.stop if keeper is not None else lambda: None)
            root.write_run(RunInfo(pipeline=spec.name, instance=root.identity.instance, zookeeper=zookeeper, driver_pid=os.getpid()))
            self._check_zookeeper(root, spec, zookeeper)
            supervisor = Supervisor(line.say)
            stops.append(lambda: services.stop(_GRACE_S))
            self._start_services(services, supervisor, root, spec, zookeeper)
            launcher = self._launcher(root, spec, zookeeper)
            stops.append(lambda: launcher.stop(_GRACE_S))
            for slot in range(self._settings.workers):
                supervisor.keep(f"worker {slot}", lambda slot=slot: launcher.start(slot))  # type: ignore[misc]
            watcher = StatusWatcher(lambda: ZooKeeperCoordination(zookeeper, spec.name))
            watcher.start()
            stops.append(watcher.stop)
            run = _Run(root, spec, graph, zookeeper, keeper, services, launcher, supervisor, watcher)
            return self._watch(run, bounded, line)
        finally:
            if len(stops) > 2:
                services.stop_one("master", _GRACE_S)
            for stop in reversed(stops):
                stop()

    def _check_zookeeper(self, root: Root, spec: PipelineSpec, zookeeper: str) -> None:
        """ZooKeeper and root must belong together: tables of another root, or none for a root in use, lose state."""
        coordination = ZooKeeperCoordination(zookeeper, spec.name)
        try:
            mine = root.identity.instance.encode()
            stands = coordination.put_if_absent("instance", mine)
            if stands != mine:
                raise SetupError(
                    f"ZooKeeper at {zookeeper} coordinates another run of {spec.name!r} (root instance {stands.decode()}, "
                    f"ours is {root.identity.instance}); use another chroot (--zookeeper host:port/chroot) or that root"
                )
            used = (root.path / "journal").is_dir() and any((root.path / "journal").iterdir())
            if used and not coordination.tables():
                raise SetupError(
                    f"The root {root.path} holds journals, but ZooKeeper at {zookeeper} has no range tables for it: "
                    "its data was lost or it is another server. Point --zookeeper at the one this root was used with"
                )
        finally:
            coordination.close()

    def _start_services(
        self, services: Services, supervisor: Supervisor, root: Root, spec: PipelineSpec, zookeeper: str
    ) -> None:
        template = ServiceTemplate(str(root.path), zookeeper, spec.name)
        workers = ("--workers", str(self._settings.workers))
        supervisor.keep("master", lambda: services.start("master", template.command("millwheel.master", *workers)))
        supervisor.keep("injector", lambda: services.start("injector", template.command("millwheel.injector")))

    def _launcher(self, root: Root, spec: PipelineSpec, zookeeper: str) -> Launcher:
        settings = self._settings
        far = settings.launcher == "spark" and bool(settings.spark_master or settings.submitted)
        scratch = "" if far else str(root.scratch)
        template = WorkerTemplate(str(root.path), zookeeper, spec.name, str(root.logs), scratch)
        if settings.launcher == "processes":
            return ProcessLauncher(template)
        spark = SparkSettings(
            master=settings.spark_master,
            slots=settings.workers,
            app_name=f"millwheel {spec.name}",
            scratch=str(root.scratch),
            log=str(root.logs / "spark.log"),
            submitted=settings.submitted,
        )
        return SparkLauncher(template, spark, str(root.stop_file))

    # --- while it runs -----------------------------------------------------------------------------------

    def _watch(self, run: _Run, bounded: bool, line: ProgressLine) -> int:
        rate = RateMeter()
        while True:
            now_s = time.monotonic()
            self._take_deaths(run, now_s)
            view = run.watcher.latest
            records = total(run.graph, {n: v.counters for n, v in view.nodes.items()}, "records_in") if view else 0
            line.show(progress_text(run.spec.name, run.graph, view, rate.add(now_s, records), run.supervisor.restarts()), now_s)
            if view is not None and bounded and view.drained(run.graph):
                summary = summarize(run.graph, view, now_s - self._started_s, run.supervisor.restarts())
                run.root.complete(summary.to_json())
                self._finish(summary, run.root)
                return 0
            if self._stop_asked:
                line.say(f"Stopped. The same command with --root {run.root.path} continues where it stopped.")
                return 0
            time.sleep(_STEP_S)

    @staticmethod
    def _take_deaths(run: _Run, now_s: float) -> None:
        for ended in run.services.ended():
            run.supervisor.ended(ended, now_s)
        for gone in run.launcher.exits():
            run.supervisor.ended(Ended(f"worker {gone.slot}", gone.code, gone.lived_s, gone.last_words), now_s)
        if run.keeper is not None:
            run.keeper.check()
        run.supervisor.step(now_s)

    def _finish(self, summary: Summary, root: Root) -> None:
        if self._settings.summary:
            write_atomically(Path(self._settings.summary), msgspec.json.format(msgspec.json.encode(summary.to_json())))
        say = self._console.print
        say(
            f"{summary.records_in:,} records in, {summary.records_out:,} out; {summary.duplicates:,} duplicates and "
            f"{summary.late:,} late ones dropped, {summary.dead_letters:,} dead-lettered. "
            f"{summary.seconds:.1f} s, {summary.rate:,.0f} records/s.",
            highlight=False,
        )
        if summary.latency_ms:
            words = ", ".join(f"{name} {value:.1f}" for name, value in summary.latency_ms.items())
            say(f"Latency from read to visible, ms: {words}.", highlight=False)
        for stream, place in summary.outputs.items():
            say(f"  {stream}: {place}", highlight=False, soft_wrap=True)

