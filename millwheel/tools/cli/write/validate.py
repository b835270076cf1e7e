"""``millwheel validate``: lists all errors of a pipeline before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec import resolve_params
from millwheel.language.spec.pipelines import check_pipeline
from millwheel.tools.cli.look.status import write_json


class Verdict(msgspec.Struct, frozen=True):
    """What ``--json`` prints. ``problems`` and ``warnings`` are sentences that begin with file and
    line."""

    valid: bool
    pipeline: str
    streams: int
    computations: int
    sinks: int
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(pipeline: str, params: Mapping[str, str], as_json: bool) -> int:
    """Print its errors, or that there are none. Returns the exit code. Raises PipelineError,
    without ``as_json``, if it is wrong."""
    try:
        values = resolve_params(pipeline, params, os.environ, os.getcwd())
        spec, warnings = check_pipeline(pipeline, values)
    except PipelineError as error:
        if not as_json:
            raise
        write_json(Verdict(False, "", 0, 0, 0, tuple(error.problems)))
        return 1
    if as_json:
        counts = (len(spec.streams), len(spec.computations), len(spec.sinks))
        write_json(Verdict(True, spec.name, *counts, warnings=tuple(warnings)))
        return 0
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"{spec.name}: {_counted(spec)}; all right")
    return 0


def _counted(spec: PipelineSpec) -> str:
    parts = ((spec.streams, "streams"), (spec.computations, "computations"), (spec.sinks, "sinks"))
    return ", ".join(f"{len(part)} {word}" for part, word in parts)
