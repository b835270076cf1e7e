"""``millwheel chaos``: run a pipeline undisturbed and under faults, compare, and report."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.ports import Coordination
from millwheel.adapters.processes.address import EMBEDDED
from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.rights import under_users_umask
from millwheel.control.roots.attach import attach
from millwheel.core.model.times import duration_us
from millwheel.core.order.arrival import CURE
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline, resolve_params
from millwheel.launch.certificates import make_set
from millwheel.launch.settings import LauncherKind, SparesNumber
from millwheel.tools.chaos.fault_injector import Command, FaultInjector, Outcome
from millwheel.tools.chaos.namespaces import Namespaces
from millwheel.tools.chaos.observer import Observer
from millwheel.tools.chaos.plan import Plan, Target
from millwheel.tools.chaos.report import recovery_table, summary
from millwheel.tools.chaos.results import Difference, compared, free_sinks, result_folders
from millwheel.tools.cli.status import write_json

CALM, CHAOS = "calm", "chaos"
_FREE = 4  # Fixed: exit code where only such results differ as arrival decides
_OUTAGE_S = 60.0  # as long as the driver tolerates without ZooKeeper


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """The settings of the command line."""

    pipeline: str
    params: Mapping[str, str]
    plan: Plan
    launcher: LauncherKind
    workers: int
    folder: str
    most: int
    limit_s: float
    summary: str = ""
    as_json: bool = False
    spares: SparesNumber = 0
    hosts: int = 0
    """How many hosts the workers share, in namespaces; 0: each worker has one of its own."""

    @property
    def namespaces(self) -> int:
        """How many hosts there must be."""
        return self.hosts or self.workers + (1 if self.spares == "auto" else self.spares)


def parse_targets(
    text: str, launcher: LauncherKind, partition: bool = False, hosts: int = 0
) -> tuple[Target, ...]:
    """``workers,master`` as targets. Raises SetupError that names an unknown target."""
    by_name = {target.value: target for target in Target}
    targets = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word not in by_name:
            raise SetupError(
                f"--kill {word}: there is no such target; there are {', '.join(by_name)}"
            )
        targets.append(by_name[word])
    if Target.EXECUTORS in targets and launcher is not LauncherKind.SPARK:
        raise SetupError("--kill executors: only --launcher spark has executors")
    if not targets:
        raise SetupError(
            "--kill names nothing; write for example --kill workers,injector (of"
            f" {', '.join(by_name)})"
        )
    if Target.HOSTS in targets and (launcher is LauncherKind.SPARK or not hosts):
        raise SetupError(
            "--kill hosts: give --hosts N too; executors of Spark here share one host, so use"
            " --launcher processes"
        )
    if partition and Target.WORKERS not in targets:
        raise SetupError("--partition cuts workers off: name them in --kill, too")
    return tuple(dict.fromkeys(targets))


def parse_seconds(text: str, option: str) -> float:
    """A duration such as 2s, in seconds."""
    try:
        return duration_us(text) / 1e6
    except ValueError as ex:
        raise SetupError(f"{option} {text}: {ex}") from None


def chaos(settings: ChaosSettings, console: Console) -> int:
    """Run the pipeline twice, undisturbed and under faults. Returns 0 when the results are the
    same, 4 when they differ only where arrival decides, also without faults, and 1 when anything
    else differs."""
    # all that was started must be stopped, and all that was made removed
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _both_runs(settings, console)
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _both_runs(settings: ChaosSettings, console: Console) -> int:
    specs = {run: _spec(settings, run) for run in (CALM, CHAOS)}
    compared(specs[CALM], specs[CHAOS])
    folder = Path(settings.folder)
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(
            f"{folder} is not empty, and both runs need new roots; remove it, or give another"
            " --folder"
        )
    console.print(f"{specs[CALM].name}: the undisturbed run")
    calm = _fault_injector(settings, CALM, console).run(None, lambda: True, 0, settings.limit_s)
    console.print(
        f"{specs[CALM].name}: {calm.seconds:.1f} s undisturbed; now with faults (seed"
        f" {settings.plan.seed})"
    )
    disturbed = _disturbed_run(settings, result_folders(specs[CHAOS]), console)
    differences = compared(specs[CALM], specs[CHAOS])
    free = free_sinks(specs[CALM])
    _report(calm, disturbed, differences, free, console)
    if settings.summary:
        with under_users_umask():
            Path(settings.summary).write_text(
                json.dumps(summary(calm, disturbed, differences, free), indent=2) + "\n"
            )
    if settings.as_json:
        write_json(summary(calm, disturbed, differences, free))
    code = exit_code(differences, free)
    if code == 0:
        for run in (CALM, CHAOS):
            shutil.rmtree(folder / run, ignore_errors=True)
    return code


def exit_code(differences: Sequence[Difference], free: Mapping[str, Sequence[str]]) -> int:
    """See :func:`chaos`; ``free``: where arrival decides, by stream."""
    unequal = [each for each in differences if each.lost or each.surplus]
    if not unequal:
        return 0
    return _FREE if all(free[each.stream] for each in unequal) else 1


def _spec(settings: ChaosSettings, run: str) -> PipelineSpec:
    params = resolve_params(settings.pipeline, _params(settings, run), os.environ, os.getcwd())
    return load_pipeline(settings.pipeline, params)


def _params(settings: ChaosSettings, run: str) -> dict[str, str]:
    return {name: value.replace("{run}", run) for name, value in settings.params.items()}


def _disturbed_run(settings: ChaosSettings, results: Sequence[Path], console: Console) -> Outcome:
    plan = settings.plan
    with ExitStack() as stack:
        needed = plan.partitions or settings.hosts
        namespaces = _namespaces(settings, stack, console) if needed else None
        injector = _fault_injector(settings, CHAOS, console, namespaces)
        begun = lambda: any(any(folder.glob("part-*")) for folder in results)  # noqa: E731
        return injector.run(
            replace(plan, partitions=plan.partitions and namespaces is not None),
            begun,
            settings.most,
            settings.limit_s,
        )


def _namespaces(settings: ChaosSettings, stack: ExitStack, console: Console) -> Namespaces | None:
    """Network namespaces for the workers; None, after a message, where the system allows none."""
    if settings.launcher is LauncherKind.SPARK:
        why = "the executors of one Spark share a network; use --launcher processes"
    else:
        try:
            return stack.enter_context(Namespaces(settings.namespaces))
        except SetupError as error:
            if settings.hosts:
                raise SetupError(f"--hosts {settings.hosts}: {error}") from error
            why = str(error)
    console.print(f"--partition is skipped, because {why}.", markup=False, highlight=False)
    return None


def _fault_injector(
    settings: ChaosSettings, run: str, console: Console, namespaces: Namespaces | None = None
) -> FaultInjector:
    root = Path(settings.folder) / run
    log = Path(settings.folder) / f"{run}.log"
    observer = Observer(root, lambda: _session(root)) if run == CHAOS else None
    command = _command(settings, run, root, namespaces)
    return FaultInjector(
        command, log, lambda text: console.print(f"  {text}"), observer, namespaces
    )


def _command(
    settings: ChaosSettings, run: str, root: Path, namespaces: Namespaces | None
) -> Command:
    sets = [
        part
        for name, value in _params(settings, run).items()
        for part in ("--set", f"{name}={value}")
    ]
    common = [settings.pipeline, *sets, "--root", str(root), "--workers", str(settings.workers)]
    common += ["--spares", str(settings.spares)]
    if namespaces is None:
        # A run on processes has no ZooKeeper to kill, unless it is given one.
        zookeeper = ["--zookeeper", EMBEDDED] if Target.ZOOKEEPER in settings.plan.targets else []
        launcher = ["--launcher", settings.launcher.value, *zookeeper]
        return Command(module_command("millwheel", ("run", *common, *launcher)))
    security = make_set(str(Path(settings.folder) / "security")).absolute()
    argv = module_command("millwheel.tools.chaos", (*common, "--security", str(security)))
    return Command(argv, namespaces.environment)


def _session(root: Path) -> Coordination:
    """A session with the ZooKeeper of the running pipeline; the session survives faults of the
    server."""
    run = attach(root.absolute())
    return open_coordination(
        run.zookeeper,
        run.pipeline,
        lost_after_s=_OUTAGE_S,
        connect_timeout_s=1.0,
        security=run.security,
    )


def _report(
    calm: Outcome,
    disturbed: Outcome,
    differences: Sequence[Difference],
    free: Mapping[str, Sequence[str]],
    console: Console,
) -> None:
    if not disturbed.fault_counts:
        console.print("The run ended before any fault: give it more input, or a shorter --every.")
    else:
        console.print(recovery_table(disturbed))
    faults = sum(each.number for each in disturbed.fault_counts.values())
    console.print(
        f"{calm.seconds:.1f} s undisturbed, {disturbed.seconds:.1f} s with {faults} faults"
    )
    for each in differences:
        verdict = (
            "the same"
            if not each.lost and not each.surplus
            else f"{each.lost} missing, {each.surplus} extra"
        )
        console.print(f"{each.stream}: {each.rows} rows, {verdict}")
        for line in each.examples():
            console.print(f"  {line}", highlight=False, markup=False)
        for line in _cause(each, free[each.stream]):
            console.print(f"  {line}", highlight=False, markup=False)


def _cause(difference: Difference, reasons: Sequence[str]) -> list[str]:
    """The possible causes of a difference, in words."""
    if not difference.lost and not difference.surplus:
        return []
    if not reasons:
        return [
            "Nothing may make this difference: a defect of MillWheel, or code that is not a"
            " function of its input."
        ]
    sentences = [f"Arrival decides in {reason}." for reason in reasons]
    return [
        *sentences,
        (
            f"Two runs without faults may differ as well. For a callback, {CURE}"
            " (docs/guarantees.md, Order)."
        ),
    ]
