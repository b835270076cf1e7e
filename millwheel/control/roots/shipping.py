"""The pipeline as workers see it: a copy of its folder and its parameters below the root.

A worker on another machine has neither the user's folder nor the user's environment, so the driver
copies the YAML file (as ``pipeline.yaml``), the Python files that it imports and the files that it
declares (``ship:``) to ``<root>/pipeline/``, and writes the values of all ``${parameters}``, the
environment's included, to ``params.json`` beside them. It copies no other files of the folder,
because roots and results may lie in it, too. A Python pipeline keeps its file name, by which its
functions are found; the file ``entry`` holds this name. Every process of the run loads the copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from millwheel.control.roots.root import write_atomically
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from millwheel.language.spec import PipelineFile, load_pipeline, resolve_params
from millwheel.language.spec.ship import files_to_ship

PIPELINE_FILE = "pipeline.yaml"
PARAMS_FILE = "params.json"
ENTRY_FILE = "entry"
"""Holds the entry to load (``visits.py:visits``) if it is not ``pipeline.yaml``."""
ORIGIN_FILE = "origin"
"""Holds the original folder of the pipeline: literal relative paths in the pipeline are relative to
it."""
BLUEPRINT_FILE = ".blueprint.json"
"""Holds the parts of the pipeline that concern its state."""
HOME_FILE = ".home"
"""Holds the folder for the pipeline's data beside its root, when the root is not a folder."""
# of a pipeline's folder: every worker reads them, and data does not belong there
TOTAL_LIMIT_BYTES = 50_000_000


def ship(
    pipeline: str | Path,
    params: Mapping[str, str],
    root: Path,
    spec: PipelineSpec,
    blueprint: bytes = b"",
) -> Path:
    """Copy the pipeline (``p.yaml``, ``p.py`` or ``p.py:name``), which was read as ``spec``, below
    the root and return the copy's folder. Replaces the files of an earlier run. A later run
    compares its pipeline with ``blueprint`` ("": with nothing).

    Raises SetupError when the files are too large to send to each worker.
    """
    pipeline_file = PipelineFile.of(str(pipeline))
    file = Path(pipeline_file.file)
    staged, target = root / ".pipeline", root / "pipeline"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    _copy(files_to_ship(spec), Path(spec.folder), staged)
    if pipeline_file.is_python:
        entry = f"{file.name}:{pipeline_file.variable}" if pipeline_file.variable else file.name
        write_atomically(staged / ENTRY_FILE, entry.encode())
    else:
        shutil.copyfile(file, staged / PIPELINE_FILE)
    values = resolve_params(str(pipeline), params, os.environ, os.getcwd())
    write_atomically(staged / PARAMS_FILE, msgspec.json.encode(values))
    write_atomically(staged / ORIGIN_FILE, str(file.resolve().parent).encode())
    if blueprint:
        write_atomically(staged / BLUEPRINT_FILE, blueprint)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(staged, target)
    return target


def _copy(files: Iterable[Path], folder: Path, target: Path) -> None:
    sizes = {path: path.stat().st_size for path in files}
    if sum(sizes.values()) > TOTAL_LIMIT_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise SetupError(
            f"The pipeline takes more than {TOTAL_LIMIT_BYTES // 1_000_000} MB of its folder"
            f" {folder} along to each worker (the largest file is {largest.relative_to(folder)})."
            " Declare less under `ship`, and put large data where workers can read it themselves."
        )
    for path in sizes:
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


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
