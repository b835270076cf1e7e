"""Loads the pipeline that a driver shipped to the root, for every process of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from millwheel.control.roots.shipping import (
    ENTRY_FILE,
    HOME_FILE,
    ORIGIN_FILE,
    PARAMS_FILE,
    PIPELINE_FILE,
)
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline


def load_shipped(root: str) -> PipelineSpec:
    """The spec with the defaults of every pipeline. Raises SetupError when nothing was shipped."""
    folder = Path(root) / "pipeline"
    try:
        params = msgspec.json.decode((folder / PARAMS_FILE).read_bytes(), type=dict[str, str])
        origin = (folder / ORIGIN_FILE).read_text(encoding="utf-8")
        entry = folder / ENTRY_FILE
        name = entry.read_text(encoding="utf-8") if entry.exists() else PIPELINE_FILE
        home = folder / HOME_FILE
        address = home.read_text(encoding="utf-8") if home.exists() else root
    except (OSError, *DAMAGE) as error:
        raise SetupError(
            f"{folder} holds no pipeline that `millwheel run` shipped: {error}"
        ) from error
    return with_defaults(load_pipeline(str(folder / name), params, origin=origin), address)


def with_defaults(spec: PipelineSpec, root: str) -> PipelineSpec:
    """The spec with a sink for dead letters, below the root unless the pipeline names one: no bad
    record is lost."""
    if any(sink.stream == DEAD_LETTERS for sink in spec.sinks):
        return spec
    sink = SinkSpec(
        DEAD_LETTERS, "files", {"path": str(Path(root) / DEAD_LETTERS), "format": "jsonl"}
    )
    return replace(spec, sinks=(*spec.sinks, sink))
