"""From a pipeline in this process to a run: checked here, packed, and started in a process of its
own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from millwheel.connect.kinds import build_source
from millwheel.connect.python_objects import importing
from millwheel.control.roots.root import root_path
from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.errors import PipelineError, SetupError
from millwheel.language.spec.reading.problems import unknown
from millwheel.launch.settings import LauncherKind, RunSettings, parse_spares
from millwheel.python.handles.handle import RunHandle
from millwheel.python.handles.pack import pack
from millwheel.python.handles.tables import RunResult, StreamFiles, files_of

RESULTS = "results"
"""The folder in the root with the rows of streams that have no sink."""


def started(
    pipeline: Any,
    params: Mapping[str, Any] | None = None,
    *,
    root: str = "",
    workers: int = 2,
    keep: Sequence[str] | None = None,
    shows: bool = False,
    **settings: Any,
) -> RunHandle:
    """Start a run. Raises PipelineError, before anything is started, when the pipeline is
    invalid."""
    if importing():
        raise PipelineError(
            "run() is called while the file is imported, which workers and commands do; write it"
            " below `if __name__ == '__main__':`"
        )
    values = {name: str(value) for name, value in (params or {}).items()}
    run_settings = _settings(values, workers, settings)
    spec = pipeline.spec(values)
    address = str(root_path(os.fspath(root) or run_settings.root_address(spec.name)))
    sinks = _kept(spec, keep, address)
    folder = tempfile.mkdtemp(prefix="millwheel-run-")
    try:
        file = pack(pipeline, spec, sinks, Path(folder))
        chosen = {each.name: getattr(run_settings, each.name) for each in fields(run_settings)}
        chosen |= {"pipeline": file, "root": os.fspath(root) or address}
        streams: dict[str, StreamFiles | str] = files_of(spec, spec.folder)
        streams |= {
            stream: StreamFiles(Path(options["path"]), "jsonl") for stream, options in sinks.items()
        }
        if DEAD_LETTERS not in streams:
            streams[DEAD_LETTERS] = StreamFiles(Path(address) / DEAD_LETTERS, "jsonl")
        return RunHandle(RunSettings(**chosen), spec.name, streams, Path(folder), shows)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def in_foreground(handle: RunHandle) -> RunResult:
    """Wait for the end of a run. Ctrl-C shuts it down cleanly; a second one kills it."""
    try:
        return handle.result()
    except KeyboardInterrupt:
        try:
            handle.stop()
        except KeyboardInterrupt:
            handle.kill()
        raise


def _settings(params: Mapping[str, str], workers: int, more: Mapping[str, Any]) -> RunSettings:
    names = [
        each.name
        for each in fields(RunSettings)
        if each.name not in ("pipeline", "params", "submitted")
    ]
    for name in more:
        if name not in names:
            raise SetupError(unknown("setting of a run", name, names))
    values = {"launcher": LauncherKind.PROCESSES, **more}
    values["launcher"] = LauncherKind(values["launcher"])
    values["spares"] = parse_spares(str(values.get("spares", 0)))
    values["conf"] = {
        name: _conf_text(value) for name, value in dict(values.get("conf", {})).items()
    }
    return RunSettings("", params, workers, **values)


def _conf_text(value: Any) -> str:
    """A setting of Spark, which are all text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kept(spec: PipelineSpec, keep: Sequence[str] | None, root: str) -> dict[str, dict[str, Any]]:
    """The options of the sinks of streams whose rows are kept in the root."""
    names = list(keep) if keep is not None else _unconsumed(spec) if _bounded(spec) else []
    sinks, produced = {sink.stream for sink in spec.sinks}, _produced(spec)
    for stream in names:
        if stream not in produced:
            raise SetupError(unknown("stream", stream, produced))
    back = retracting_streams(spec)
    streams = [stream for stream in names if stream not in sinks]
    options: dict[str, dict[str, Any]] = {
        s: {"path": str(Path(root) / RESULTS / s), "format": "jsonl"} for s in streams
    }
    for stream in back & options.keys():
        options[stream]["mode"] = "changelog"
    return options


def _produced(spec: PipelineSpec) -> list[str]:
    streams = [stream.name for stream in spec.streams]
    for computation in spec.computations:
        streams += [
            *computation.outputs,
            *([computation.late_side] if computation.late_side else []),
        ]
    return list(dict.fromkeys(streams))


def _unconsumed(spec: PipelineSpec) -> list[str]:
    """Outputs of computations that nothing consumes."""
    consumed = {each.stream for computation in spec.computations for each in computation.inputs}
    consumed |= {sink.stream for sink in spec.sinks} | {DEAD_LETTERS}
    outputs = [stream for computation in spec.computations for stream in computation.outputs]
    return [stream for stream in dict.fromkeys(outputs) if stream not in consumed]


def _bounded(spec: PipelineSpec) -> bool:
    sources = [stream.source for stream in spec.streams if stream.source is not None]
    return all(build_source(source, spec.folder).bounded for source in sources)
