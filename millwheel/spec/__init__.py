"""From a YAML file to a :class:`~millwheel.core.spec.PipelineSpec`, or to a list of what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from millwheel.core.spec import PipelineSpec
from millwheel.spec.checks import check_code as _check_code
from millwheel.spec.checks import check_cycles, check_streams
from millwheel.spec.computations import read_computation
from millwheel.spec.document import PARAMETER, Section, as_section, fill_in, read_document
from millwheel.spec.streams import read_sink, read_stream

__all__ = ["load_pipeline", "resolve_params"]

_PATH = re.compile(r"\bpath\s*:\s*[\[\s\"']*")


def load_pipeline(
    path: str,
    params: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    origin: str | None = None,
    check_code: bool = True,
) -> PipelineSpec:
    """Read, fill in and validate a pipeline.

    ``params`` are the values of ``${name}``, before those of ``environ`` (default: the process's). Literal relative
    paths are relative to ``origin`` (default: the file's folder). ``check_code`` False does not import user code.
    Raises PipelineError with one sentence for each problem: file, line, field, and what to write instead.
    """
    values = {**(os.environ if environ is None else environ), **(params or {})}
    document, problems = read_document(path)
    filled = fill_in(document, values, problems)
    problems.raise_any()
    top = as_section(problems, "", 1, filled)
    folder = str(Path(path).resolve().parent)
    spec = _read(top, folder, origin or folder)
    if not problems.found:
        check_streams(spec, top)
        if check_code:
            _check_code(spec, top)
        check_cycles(spec, top, check_code)
    problems.raise_any()
    return spec


def _read(top: Section, folder: str, origin: str) -> PipelineSpec:
    top.allow("pipeline", "streams", "computations", "sinks")
    name = (top.names("pipeline") or ("",))[0]
    if not name:
        top.problems.add(1, "pipeline", "the pipeline has no name; write pipeline: NAME")
    if not top.section("streams").data:
        top.problems.add(top.at("streams"), "streams", "a pipeline reads at least one stream with a source")
    sinks = top.section("sinks")
    found = [read_sink(stream, section, sinks, origin) for stream, section in top.sections("sinks")]
    return PipelineSpec(
        name=name,
        streams=tuple(read_stream(stream, section, origin) for stream, section in top.sections("streams")),
        computations=tuple(read_computation(each, section) for each, section in top.sections("computations")),
        sinks=tuple(sink for sink in found if sink is not None),
        folder=folder,
        file=top.problems.file,
    )


def resolve_params(path: str, params: Mapping[str, str], environ: Mapping[str, str], cwd: str) -> dict[str, str]:
    """The parameters that a pipeline mentions, with those that start a ``path:`` made absolute from ``cwd``.

    What a person types on a command line is relative to where they stand; workers stand elsewhere.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    values = {**environ, **params}
    mentioned = {name for name, _ in PARAMETER.findall(text) if name in values}
    found = {name: str(values[name]) for name in sorted(mentioned)}
    starts = {match.group(1) for line in text.splitlines() for match in _path_parameters(line)}
    for name in starts & set(found):
        if found[name] and "://" not in found[name]:
            found[name] = str(Path(cwd, found[name]))
    return found


def _path_parameters(line: str) -> list[re.Match[str]]:
    found = [PARAMETER.match(line, start.end()) for start in _PATH.finditer(line)]
    return [match for match in found if match is not None]
