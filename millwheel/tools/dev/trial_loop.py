"""The loop of ``millwheel dev``: load, try, show; again when a file of the pipeline's folder has
changed."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from millwheel.connect.python_objects import forget_modules
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import MillwheelError
from millwheel.language.spec import PipelineFile, load_pipeline, resolve_params
from millwheel.language.spec.imports import files_below
from millwheel.language.spec.parameters import stand_ins
from millwheel.language.spec.pipelines import read_document
from millwheel.tools.dev.report import as_line, print_trial
from millwheel.tools.dev.samples import UNSET, Sample, samples_of
from millwheel.tools.dev.stages import Trial, tried

_LOOK_S = 0.2  # between looks at the files
_MOST_FILES = 5_000  # of a folder that are looked at
_SUFFIXES = (".py", ".yaml", ".yml", ".json", ".jsonl", ".csv", ".avsc", ".proto", ".txt")

Stamps = Mapping[str, tuple[int, int]]


def once(
    pipeline: str, params: Mapping[str, str], inputs: Mapping[str, str], records: int, rows: int
) -> Trial:
    """Load a pipeline afresh and try it. Parameters of sources and sinks need no value. Raises
    MillwheelError."""
    forget_modules()
    return tried(*loaded(pipeline, params, inputs, records), rows)


def loaded(
    pipeline: str, params: Mapping[str, str], inputs: Mapping[str, str], records: int
) -> tuple[PipelineSpec, list[Sample]]:
    """A pipeline and a sample of each of its streams; see :func:`once`."""
    values = resolve_params(pipeline, params, os.environ, os.getcwd())
    unset = stand_ins(read_document(pipeline).top, lambda name: f"{UNSET}{name}")
    spec = load_pipeline(pipeline, {**unset, **values})
    return spec, samples_of(spec, inputs, records)


def shown_once(attempt: Callable[[], Trial], console: Console, as_json: bool = False) -> bool:
    """Try it and print the outcome, for people or as one line of JSON; False when it could not be
    tried."""
    began_s = time.monotonic()
    trial = _trial_or_problem(attempt)
    if as_json:
        console.out(as_line(trial), highlight=False)
    elif isinstance(trial, str):
        console.print(trial, style="red", markup=False, highlight=False, soft_wrap=True)
    else:
        print_trial(trial, console)
        console.print(f"{time.monotonic() - began_s:.1f} s", style="dim")
    return not isinstance(trial, str)


def _trial_or_problem(attempt: Callable[[], Trial]) -> Trial | str:
    try:
        return attempt()
    except MillwheelError as error:
        return str(error)
    except Exception as error:  # any error of the user's code outside of a callback
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{where.filename}:{where.lineno}: {type(error).__name__}: {error}"


def again_at_each_save(
    folder: Path,
    attempt: Callable[[], Trial],
    console: Console,
    rounds: int | None = None,
    as_json: bool = False,
) -> None:
    """Try it now and whenever a file has changed; stop after ``rounds`` trials (None: after
    Ctrl-C)."""
    while rounds is None or rounds > 0:
        before = stamps(folder)
        if not as_json:
            console.clear()
        shown_once(attempt, console, as_json)
        rounds = None if rounds is None else rounds - 1
        if rounds == 0:
            return
        if not as_json:
            console.print("Saved files are tried again; Ctrl-C ends this.", style="dim")
        while stamps(folder) == before:
            time.sleep(_LOOK_S)


def stamps(folder: Path) -> Stamps:
    """Time and size of the files that a pipeline may be made of."""
    by_path: dict[str, tuple[int, int]] = {}
    for path in files_below(folder):
        if path.suffix in _SUFFIXES and len(by_path) < _MOST_FILES:
            try:
                stat = path.stat()
            except OSError:
                continue  # it has just been replaced: the next look sees the new one
            by_path[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return by_path


def folder_of(pipeline: str) -> Path:
    """The folder whose files are watched."""
    return Path(PipelineFile.of(pipeline).file).resolve().parent
