"""``millwheel chaos``: run a pipeline in peace and under faults, compare, and report."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millwheel.chaos.plan import Fault, Plan, Target
from millwheel.chaos.results import Difference, compared, result_folders
from millwheel.chaos.storm import Outcome, Storm
from millwheel.core.spec import PipelineSpec
from millwheel.core.times import duration_us
from millwheel.errors import SetupError
from millwheel.launch.settings import LauncherKind
from millwheel.spec import load_pipeline, resolve_params

CALM, CHAOS = "calm", "chaos"


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """What the command line asks for."""

    pipeline: str
    params: Mapping[str, str]
    plan: Plan
    launcher: LauncherKind
    workers: int
    folder: str
    most: int
    limit_s: float


def parse_targets(text: str, launcher: LauncherKind) -> tuple[Target, ...]:
    """``workers,master`` as targets. SetupError naming what is none."""
    known = {target.value: target for target in Target}
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word not in known:
            raise SetupError(f"--kill {word}: there is no such target; there are {', '.join(known)}")
        found.append(known[word])
    if Target.EXECUTORS in found and launcher is not LauncherKind.SPARK:
        raise SetupError("--kill executors: only --launcher spark has executors")
    if not found:
        raise SetupError(f"--kill names nothing; write for example --kill workers,injector (of {', '.join(known)})")
    return tuple(dict.fromkeys(found))


def parse_seconds(text: str, option: str) -> float:
    """A duration such as 2s, in seconds."""
    try:
        return duration_us(text) / 1e6
    except ValueError as ex:
        raise SetupError(f"{option} {text}: {ex}") from None


def chaos(settings: ChaosSettings, console: Console) -> int:
    """Both runs. 0 when their results are the same, else 1."""
    specs = {run: _spec(settings, run) for run in (CALM, CHAOS)}
    compared(specs[CALM], specs[CHAOS])
    folder = Path(settings.folder)
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} is not empty, and both runs begin anew; remove it, or give another --folder")
    console.print(f"{specs[CALM].name}: a run in peace")
    calm = _storm(settings, CALM, console).run(None, lambda: True, 0, settings.limit_s)
    console.print(f"{specs[CALM].name}: {calm.seconds:.1f} s in peace; now with faults (seed {settings.plan.seed})")
    results = result_folders(specs[CHAOS])
    stormy = _storm(settings, CHAOS, console).run(
        settings.plan, lambda: any(any(place.glob("part-*")) for place in results), settings.most, settings.limit_s
    )
    differences = compared(specs[CALM], specs[CHAOS])
    _report(calm, stormy, differences, console)
    same = not any(each.lost or each.surplus for each in differences)
    if same:
        for run in (CALM, CHAOS):
            shutil.rmtree(folder / run, ignore_errors=True)
    return 0 if same else 1


def _spec(settings: ChaosSettings, run: str) -> PipelineSpec:
    params = resolve_params(settings.pipeline, _params(settings, run), os.environ, os.getcwd())
    return load_pipeline(settings.pipeline, params)


def _params(settings: ChaosSettings, run: str) -> dict[str, str]:
    return {name: value.replace("{run}", run) for name, value in settings.params.items()}


def _storm(settings: ChaosSettings, run: str, console: Console) -> Storm:
    sets = [part for name, value in _params(settings, run).items() for part in ("--set", f"{name}={value}")]
    root = Path(settings.folder) / run
    command = [settings.pipeline, *sets, "--root", str(root), "--launcher", settings.launcher.value]
    log = Path(settings.folder) / f"{run}.log"
    return Storm([*command, "--workers", str(settings.workers)], log, lambda text: console.print(f"  {text}"))


def _report(calm: Outcome, stormy: Outcome, differences: Sequence[Difference], console: Console) -> None:
    table = Table("what", "faults", "replaced after, s: median", "longest")
    for (target, fault), struck in sorted(stormy.struck.items(), key=lambda item: (item[0][0].value, item[0][1].value)):
        took = struck.replaced_s
        median = f"{statistics.median(took):.2f}" if took else "-"
        longest = f"{max(took):.2f}" if took else "-"
        table.add_row(f"{fault.value} {target.value}", str(struck.blows), median, longest)
    if not stormy.struck:
        console.print("The run was over before any fault: give it more input, or a shorter --every.")
    else:
        console.print(table)
    killed = sum(struck.blows for (_, fault), struck in stormy.struck.items() if fault is Fault.KILL)
    console.print(f"{calm.seconds:.1f} s in peace, {stormy.seconds:.1f} s with {killed} kills")
    for each in differences:
        verdict = "the same" if not each.lost and not each.surplus else f"{each.lost} missing, {each.surplus} extra"
        console.print(f"{each.stream}: {each.rows} rows, {verdict}")
        for line in each.examples():
            console.print(f"  {line}", highlight=False, markup=False)
