"""Records the calls of a fluent pipeline until they become the same document as YAML.

The checks of YAML apply to that document later. Only errors that the document would hide are noted
here: a name that is used twice, an object of the wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from millwheel.connect.options import did_you_mean
from millwheel.language.spec.python_files import Document
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems
from millwheel.python.fluent.code import CodeShelf, own_name
from millwheel.python.fluent.code_lines import At, Code, CodeLine, NodeWriter, here
from millwheel.python.fluent.fusing import fused

OnError = Literal["dead_letter", "stop"] | Mapping[str, Any]
"""The effect of failures: ``"dead_letter"``, ``"stop"``, or for example ``{"stop_above": "10%",
"of_at_least": 100}``, which is the default."""

NullKey = Literal["dead_letter", "group"]
"""The treatment of a record with a null in its key."""


@dataclass(frozen=True)
class Input:
    """One stream that a computation consumes. ``key`` is a field, a list of fields, a map of
    expressions, a function, "all", or None for the key that the producer gave."""

    stream: str
    line: CodeLine
    key: Any = None
    null_key: NullKey = "dead_letter"


class DialOptions(TypedDict, total=False):
    """Options of every computation about its guarantee and its size, as arguments of methods. None
    stands for the default."""

    delivery: Literal["exactly_once", "at_least_once"] | None
    productions: Literal["strong", "weak"] | None
    max_attempts: int | None
    on_error: OnError | None
    shards: int | None
    standby: int | None
    skew: str | None


def given_dials(dials: DialOptions) -> dict[str, Any]:
    """The options that are not None. Raises TypeError for an unknown name."""
    for name in dials:
        if name not in DialOptions.__annotations__:
            raise TypeError(
                "a computation has no option"
                f" {name!r}{did_you_mean(name, [*DialOptions.__annotations__])}"
            )
    return {name: value for name, value in dials.items() if value is not None}


@dataclass
class Draft:
    """A pipeline in the making."""

    name: str
    line: CodeLine
    streams: dict[str, At] = field(default_factory=dict)
    computations: dict[str, At] = field(default_factory=dict)
    sinks: dict[str, At] = field(default_factory=dict)
    idle_windows: set[CodeLine] = field(default_factory=set)
    unnamed: set[str] = field(default_factory=set)
    code: CodeShelf = field(default_factory=CodeShelf)
    problems: list[tuple[CodeLine, str, str]] = field(default_factory=list)
    limits: Mapping[str, int | str] = field(default_factory=dict)
    queries: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)
    ship: Sequence[str] = ()
    tracing: Mapping[str, float | bool] | None = None
    latency: str = ""
    nulls: str | None = None
    origin: str = ""

    # --- records of calls -------------------------------------------------------------------------

    def note(self, path: str, text: str) -> None:
        """Note a problem with the current call."""
        self.problems.append((here(), path, text))

    def add_stream(self, name: str, fields: Mapping[str, Any]) -> None:
        """An entry below ``streams``."""
        self._add(
            self.streams,
            f"streams.{name}",
            name,
            fields,
            "read it once, and use what read() returned again",
        )

    def add_sink(self, stream: str, kind: str, options: Mapping[str, Any]) -> None:
        """An entry below ``sinks``."""
        fix = "a stream has one; let a map or filter make a second stream of it"
        self._add(self.sinks, f"sinks.{stream}", stream, {kind: options}, fix)

    def add_computation(
        self, name: str, inputs: Sequence[Input], fields: Mapping[str, Any]
    ) -> None:
        """An entry below ``computations``, under a name from :meth:`name_for`."""
        input_fields: dict[str, Any] = {}
        for each in inputs:
            if each.stream in input_fields:
                text = f"one flatten names the stream {each.stream!r} twice; name it once"
                self.note(f"computations.{name}.input.{each.stream}", text)
            key = self.keep(each.key, name, "key") if callable(each.key) else each.key
            key_options = {} if key is None else {"key": key}
            if each.null_key != "dead_letter":
                key_options["null_key"] = each.null_key
            input_fields[each.stream] = At(each.line, key_options)
        path = f"computations.{name}"
        self._add(
            self.computations,
            path,
            name,
            {"input": input_fields, **fields},
            "give this one another name=…",
        )

    def name_for(self, name: str, output: str, word: str) -> str:
        """The name of a computation: ``name``, else that of its output, else ``word`` with a number
        if that is taken."""
        if name:
            return name
        stem, number = output or word, 1
        candidate = stem
        while candidate in self.computations:
            number += 1
            candidate = f"{stem}_{number}"
        if not output:
            self.unnamed.add(candidate)
        return candidate

    def keep(self, thing: Any, *words: str) -> Code:
        """Keep some code of the user's, and return its name in the document."""
        return self.code.put(thing, *words)

    def _add(
        self, entries: dict[str, At], path: str, name: str, fields: Mapping[str, Any], fix: str
    ) -> None:
        if name in entries:
            first = entries[name].code_line
            self.note(path, f"this name is already in line {first.line}; {fix}")
        else:
            entries[name] = At(here(), fields)

    # --- the document ----------------------------------------------------------------------------

    def document(self, file: str, prefix: str, plain_names: bool = True) -> Document:
        """The document, as seen from the pipeline's own file. Code without a name of its own is
        found by ``prefix.slug``. Without ``plain_names`` all code is."""
        problems = Problems(file)
        for line, path, text in self.problems:
            problems.add(line.seen_from(file), path, text)

        def name_of(code: Code) -> str:
            return (own_name(code.thing) if plain_names else "") or f"{prefix}.{code.slug}"

        for line in self.idle_windows:
            text = (
                "this window does nothing; write .aggregate({'hits': agg.count()}) or"
                " .process(Class) after it"
            )
            problems.add(line.seen_from(file), "", text)
        writer = NodeWriter(file, name_of, problems.add)
        parts: dict[str, Any] = {"pipeline": self.name}
        if self.limits:
            parts["limits"] = self.limits
        if self.functions:
            parts["functions"] = self.functions
        if self.nulls:
            parts["nulls"] = self.nulls
        if self.ship:
            parts["ship"] = self.ship
        if self.tracing is not None:
            parts["tracing"] = self.tracing
        if self.latency:
            parts["latency"] = self.latency
        if self.streams:
            parts["streams"] = self.streams
        else:
            text = (
                "the pipeline reads nothing; write for example read('hits',"
                " FileSource('hits.jsonl', 'jsonl'), …)"
            )
            problems.add(self.line.seen_from(file), "streams", text)
        if self.queries:
            parts["queries"] = self.queries
        computations = fused(self.computations, self.unnamed, {*self.sinks, *self.streams})
        top: YamlNode = writer.node(
            {**parts, "computations": computations, "sinks": self.sinks}, self.line
        )
        return Document(top, problems, self.origin)
