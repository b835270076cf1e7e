"""Packs a pipeline of this process for workers: functions of a notebook or a script are sent by
value.

``cloudpickle`` writes the whole pipeline, with the functions and classes of ``__main__`` and of
every module that is not installed, into a folder of its own, and a Python file beside it reads it
again. The result is an ordinary Python pipeline. Code of installed packages is not packed: workers
import it.
"""

from __future__ import annotations

import importlib
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.ship import files_to_ship
from millwheel.python.handles.struct_pickling import dumps

PICKLE = "pipeline.pickle"
_CODE = f'''"""The pipeline that a Python program defined, with its functions."""

import pickle
from pathlib import Path

pipeline = pickle.loads(Path(__file__).with_name("{PICKLE}").read_bytes())
'''


def pack(
    pipeline: Any, spec: PipelineSpec, collected: Mapping[str, Mapping[str, Any]], folder: Path
) -> str:
    """Write a pipeline into an empty ``folder``, and return the path of the file that defines it.
    ``collected`` has the options of additional ``files`` sinks, by stream. Relative paths stay
    relative to the folder of the spec.

    Raises PipelineError when its code cannot be written.
    """
    for path in files_to_ship(spec):
        target = folder / path.relative_to(spec.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    copy = _loads(_dumps(pipeline))
    copy.millwheel_prepare(spec.folder, collected, PICKLE)
    (folder / PICKLE).write_bytes(_dumps(copy))
    file = folder / f"run_{re.sub(r'[^A-Za-z0-9_]', '_', spec.name)}.py"
    file.write_text(_CODE, encoding="utf-8")
    return str(file)


def _dumps(thing: Any) -> bytes:
    cloudpickle = importlib.import_module("cloudpickle")
    with _by_value(cloudpickle):
        try:
            return dumps(thing)
        except Exception as ex:  # pickling a user's object may raise anything
            raise PipelineError(
                f"The pipeline's code cannot be sent to workers: {type(ex).__name__}: {ex}. A"
                " function uses something that exists in this process only, such as an open file,"
                " a lock or a connection: make it inside the function, or write the pipeline into"
                " a Python file and run that with `millwheel run FILE.py`"
            ) from ex


def _loads(data: bytes) -> Any:
    return importlib.import_module("cloudpickle").loads(data)


@contextmanager
def _by_value(cloudpickle: ModuleType) -> Iterator[None]:
    """Within this context, the user's modules are pickled by value, as ``__main__`` is."""
    registered = []
    for module in [module for name, module in list(sys.modules.items()) if _is_users(name, module)]:
        cloudpickle.register_pickle_by_value(module)
        registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name == "__main__" or name.partition(".")[0] == "millwheel":
        return False
    if getattr(module, "__name__", "") != name or not file.endswith(".py"):
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _installed())


def _installed() -> set[str]:
    """The folders of Python and of installed packages."""
    paths = sysconfig.get_paths()
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return {
        paths["stdlib"],
        paths["platstdlib"],
        paths["purelib"],
        paths["platlib"],
        sys.prefix,
        *users,
    }
