"""The pipeline as workers see it: a copy of its folder and its parameters below the root.

A worker on another machine has neither the user's folder nor the user's environment, so the driver copies the
YAML file (as ``pipeline.yaml``), all Python files and small data files to ``<root>/pipeline/``, and writes the
values of all ``${parameters}``, the environment's included, to ``params.json`` beside them. A Python pipeline keeps its
name, which its functions are found by; the file ``entry`` says which it is.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from millwheel.errors import SetupError
from millwheel.launch.root import write_atomically
from millwheel.spec import PipelineFile, resolve_params

PIPELINE_FILE = "pipeline.yaml"
PARAMS_FILE = "params.json"
ENTRY_FILE = "entry"
"""Holds what is to be loaded (``visits.py:visits``) when it is not ``pipeline.yaml``."""
ORIGIN_FILE = "origin"
"""Holds the folder the pipeline came from, which literal relative paths in it are relative to."""
BLUEPRINT_FILE = ".blueprint.json"
"""Holds what of the pipeline concerns its state."""
HOME_FILE = ".home"
"""Holds the folder for what the pipeline keeps beside its root, when the root is no folder."""
DATA_FILE_LIMIT_BYTES = 1_000_000
TOTAL_LIMIT_BYTES = 50_000_000
_SKIPPED = re.compile(r"\.|__pycache__$|.*\.egg-info$|node_modules$|venv$")


def ship(pipeline: str | Path, params: Mapping[str, str], root: Path, blueprint: bytes = b"") -> Path:
    """Copy the pipeline (``p.yaml``, ``p.py`` or ``p.py:name``) below the root and return the copy's folder. Replaces
    what an earlier run shipped. ``blueprint`` is what a later run compares its pipeline with ("": nothing).

    Raises SetupError when there is more Python than a pipeline can have (it lies in the wrong folder).
    """
    given = PipelineFile.of(str(pipeline))
    file = Path(given.file)
    staged, target = root / ".pipeline", root / "pipeline"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    _copy(file.parent, staged, root)
    if given.is_python:
        entry = f"{file.name}:{given.variable}" if given.variable else file.name
        write_atomically(staged / ENTRY_FILE, entry.encode())
    else:
        shutil.copyfile(file, staged / PIPELINE_FILE)
        (staged / ENTRY_FILE).unlink(missing_ok=True)
    values = resolve_params(str(pipeline), params, os.environ, os.getcwd())
    write_atomically(staged / PARAMS_FILE, msgspec.json.encode(values))
    write_atomically(staged / ORIGIN_FILE, str(file.resolve().parent).encode())
    if blueprint:
        write_atomically(staged / BLUEPRINT_FILE, blueprint)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(staged, target)
    return target


def _copy(folder: Path, target: Path, root: Path) -> None:
    total = 0
    for path in _files(folder, root):
        size = path.stat().st_size
        if path.suffix != ".py" and size > DATA_FILE_LIMIT_BYTES:
            continue
        total += size
        if total > TOTAL_LIMIT_BYTES:
            raise SetupError(
                f"The folder {folder} holds more than {TOTAL_LIMIT_BYTES // 1_000_000} MB of code and small files, "
                "all of which would be sent to the workers. Put the pipeline into a folder of its own."
            )
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """Files below a folder, but nothing hidden, no environments, and not the root itself."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if not _SKIPPED.match(name) and here / name != root and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / name for name in files if not _SKIPPED.match(name))
