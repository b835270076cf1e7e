"""Parameters from a command line: their paths are relative to the user's current folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from millwheel.language.spec.parameters import mentioned_in, references
from millwheel.language.spec.python_files import PipelineFile, load_document
from millwheel.language.spec.reading.document import parse, read_text
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems

_STARTS_PATH = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_-]*)")


def resolve_params(
    path: str, params: Mapping[str, str], environ: Mapping[str, str], cwd: str
) -> dict[str, str]:
    """``params``, and the variables of the environment that the pipeline mentions. A value that
    begins a ``path`` of a source or a sink is made absolute from ``cwd``, because workers have
    another folder and another environment.

    A file that is no YAML gives no paths; :func:`~millwheel.language.spec.load_pipeline` reports
    the reason. Raises PipelineError if the file cannot be read, or, for Python, imported.
    """
    pipeline_file = PipelineFile.of(path)
    if pipeline_file.is_python:
        top: YamlNode | None = load_document(pipeline_file).top
        names = mentioned_in(top)
    else:
        text = read_text(path)
        top, names = parse(text, Problems(path)), references(text)
    mentioned = {name: environ[name] for name in names if name in environ}
    values = {**mentioned, **{name: str(value) for name, value in params.items()}}
    for name in set(_path_parameters(top)) if top is not None else ():
        if values.get(name) and "://" not in values[name]:
            values[name] = str(Path(cwd, values[name]))
    return values


def _path_parameters(node: YamlNode, name: str = "") -> Iterator[str]:
    """The parameters with which values of options called ``path`` begin."""
    if isinstance(node.value, dict):
        for inner, child in node.value.items():
            yield from _path_parameters(child, inner)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _path_parameters(child, name)
    elif name == "path" and (match := _STARTS_PATH.match(node.text)):
        yield match.group(1)
