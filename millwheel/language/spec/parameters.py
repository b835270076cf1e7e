"""Parameters: ``${name}`` and ``${name:-default}``, from ``--set name=value``, then from the
environment.

References are replaced in values, after the file was parsed. A replaced value therefore stays one
scalar and can never become YAML. A value that consists of one ``${name}`` takes the type that its
text would have without quotes (``4`` is a number); inside a longer text it is text. ``$${`` stands
for a literal ``${``.

``${secret:name}`` is not replaced here. A value with secrets becomes a ``Secret``, which the
process that uses it resolves. Secrets are allowed in options of sources, sinks and callbacks only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from millwheel.adapters.secret_values import SECRET_NAME, Secret
from millwheel.language.spec.python_files import PipelineFile, load_document
from millwheel.language.spec.reading.document import parse, read_text, scalar
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems, did_you_mean

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_SECRET = "secret:"
_MAY_BE_SECRET = re.compile(
    r"(streams\.[^.]+\.source\.[^.]+|sinks\.[^.]+\.[^.]+|computations\.[^.]+\.options)\.(?P<option>.+)"
)
_SHAPES_THE_GRAPH = ("path", "by")
"""Options that the pipeline reader itself uses; they cannot contain secrets."""
_INSIDE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)\s*(?::-(.*))?", re.DOTALL)
MAX_VALUE = 100_000
"""Characters that a value may have after replacement."""


def references(text: str) -> set[str]:
    """The names of all parameters that a text mentions."""
    insides = [
        _INSIDE.fullmatch(match.group(1))
        for match in _REFERENCE.finditer(text)
        if match.group(1) is not None
    ]
    return {inside.group(1) for inside in insides if inside is not None}


class Parameters:
    """Replaces references; remembers which parameters were used."""

    def __init__(
        self, params: Mapping[str, str], environ: Mapping[str, str], problems: Problems
    ) -> None:
        self._params = params
        self._environ = environ
        self._problems = problems
        self._used: set[str] = set()

    def replace(self, node: YamlNode) -> None:
        """Replace in all scalars at and below ``node``; a problem for each reference without a
        value."""
        if isinstance(node.value, dict):
            for name, child in node.value.items():
                if "${" in name:
                    self._problems.add(
                        child.line,
                        node.path,
                        f"a name cannot be a ${{parameter}} ({name!r:.60}); write it out",
                    )
                self.replace(child)
        elif isinstance(node.value, list):
            for child in node.value:
                self.replace(child)
        elif "${" in node.text:
            self._replace_scalar(node)

    def unused(self) -> list[str]:
        """Parameters of ``--set`` that the file does not mention."""
        return sorted(set(self._params) - self._used)

    def _replace_scalar(self, node: YamlNode) -> None:
        if any(
            (match.group(1) or "").strip().startswith(_SECRET)
            for match in _REFERENCE.finditer(node.text)
        ):
            self._replace_around_secrets(node)
            return
        whole = _REFERENCE.fullmatch(node.text)
        text = _REFERENCE.sub(lambda match: self._value(match, node), node.text)
        if len(text) > MAX_VALUE:
            self._problems.add(
                node.line,
                node.path,
                f"the value has {len(text)} characters after replacing ${{parameters}}",
            )
            text = ""
        node.text, node.given = text, True
        typed = (
            whole is not None
            and whole.group(1) is not None
            and not self._problems.concerns(node.path)
        )
        node.value = scalar(text) if typed else text

    def _replace_around_secrets(self, node: YamlNode) -> None:
        """Leaves secrets as they are written. A ``${`` in the value of a parameter is not a
        secret."""
        text = _REFERENCE.sub(lambda match: self._secret(match, node), node.text)
        option = _MAY_BE_SECRET.fullmatch(node.path)
        if option is None or option["option"].partition("[")[0] in _SHAPES_THE_GRAPH:
            self._problems.add(
                node.line,
                node.path,
                "a secret is not allowed here; use it in options of sources, sinks and callbacks,"
                " except path and by",
            )
            text = ""
        node.text, node.given, node.value = text, True, Secret(text)

    def _secret(self, match: re.Match[str], node: YamlNode) -> str:
        inside = (match.group(1) or "").strip()
        if not inside.startswith(_SECRET):
            return self._value(match, node).replace("${", "$${")
        name = inside.removeprefix(_SECRET)
        if not SECRET_NAME.fullmatch(name):
            text = (
                f"{name!r:.60} cannot be the name of a secret; write ${{secret:NAME}}, without a"
                " default"
            )
            self._problems.add(node.line, node.path, text)
        return f"${{{_SECRET}{name}}}"

    def _value(self, match: re.Match[str], node: YamlNode) -> str:
        if match.group(0) == "$${":
            return "${"
        inside = _INSIDE.fullmatch(match.group(1)) if match.group(1) is not None else None
        if inside is None:
            excerpt = repr(match.group(0))[:60]
            text = (
                f"{excerpt} is not a parameter; write ${{name}} or ${{name:-default}}, or $${{"
                " for a plain ${"
            )
            self._problems.add(node.line, node.path, text)
            return ""
        name, default = inside.groups()
        self._used.add(name)
        value = self._params.get(name, self._environ.get(name))
        if default is not None and not value:
            return str(default)
        if value is None:
            self._unknown(name, node)
            return ""
        return str(value)

    def _unknown(self, name: str, node: YamlNode) -> None:
        meant = (
            did_you_mean(name, self._params).replace("; did you mean", ", but there is").rstrip("?")
        )
        fix = f"give one with --set {name}=VALUE, or write a default: ${{{name}:-default}}"
        self._problems.add(node.line, node.path, f"${{{name}}} has no value{meant}; {fix}")


def stand_ins(top: YamlNode, value: Callable[[str], str]) -> dict[str, str]:
    """Values, made by ``value(name)``, for parameters that have none and that only sources and
    sinks mention. For callers that use neither."""
    streams = top.value.get("streams") if top.is_map else None
    outside = [top.value.get("sinks")] if top.is_map else []
    if streams is not None and streams.is_map:
        outside += [
            stream.value.get("source") for stream in streams.value.values() if stream.is_map
        ]
    texts = [text for node in outside if node is not None for text in _texts(node, ())]
    there = {name for text in texts for name in references(text)}
    skipped = tuple(id(node) for node in outside if node is not None)
    needed = {name for text in _texts(top, skipped) for name in references(text)}
    return {
        name: value(name)
        for name in there - needed - set(os.environ)
        if not any(f"${{{name}:-" in text for text in texts)
    }


def mentioned_in(node: YamlNode | None) -> set[str]:
    """The parameters in all texts at and below a node."""
    return (
        set() if node is None else {name for text in _texts(node, ()) for name in references(text)}
    )


def _texts(node: YamlNode, skipped: tuple[int, ...]) -> Iterator[str]:
    """The texts at and below a node, without the skipped nodes."""
    if id(node) in skipped:
        return
    if isinstance(node.value, dict):
        for child in node.value.values():
            yield from _texts(child, skipped)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _texts(child, skipped)
    else:
        yield node.text


_STARTS_PATH = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_-]*)")


def resolve_params(
    path: str, params: Mapping[str, str], environ: Mapping[str, str], cwd: str
) -> dict[str, str]:
    """``params``, and the variables of the environment that the pipeline mentions. A value that
    begins a ``path`` of a source or a sink is made absolute from ``cwd``, because workers have
    another folder and another environment.

    A file that is not YAML gives no paths; :func:`~millwheel.language.spec.load_pipeline` reports
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
