"""The record of the calls of a fluent pipeline, until it becomes the document that YAML would be.

Nothing is judged here that the checks of YAML judge, too; only what would be lost on the way there is noted: a name
given twice, an object of the wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from millwheel.fluent.code import CodeShelf, own_name
from millwheel.fluent.fusing import fused
from millwheel.fluent.places import At, Code, CodeLine, NodeWriter, here
from millwheel.spec.python_files import Document
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.problems import Problems

OnError = Literal["dead_letter", "stop"] | Mapping[str, Any]
"""What failures come to: dead letters for ever, an end at the first, or for example ``{"stop_above": "10%",
"of_at_least": 100}``, which is the default."""


@dataclass(frozen=True)
class Input:
    """One stream that a computation consumes. ``key`` is a field, a list of fields, a function, or None for the key
    that the producer gave."""

    stream: str
    place: CodeLine
    key: Any = None


@dataclass(frozen=True)
class Dials:
    """What every computation may say about its guarantee and its size; None is the default."""

    delivery: str | None = None
    productions: str | None = None
    max_attempts: int | None = None
    shards: int | None = None
    standby: int | None = None
    on_error: OnError | None = None

    def fields(self) -> dict[str, Any]:
        """Those that were given."""
        named = {
            "delivery": self.delivery,
            "productions": self.productions,
            "max_attempts": self.max_attempts,
            "shards": self.shards,
            "standby": self.standby,
            "on_error": self.on_error,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass
class Draft:
    """A pipeline in the making."""

    name: str
    place: CodeLine
    streams: dict[str, At] = field(default_factory=dict)
    computations: dict[str, At] = field(default_factory=dict)
    sinks: dict[str, At] = field(default_factory=dict)
    idle_windows: set[CodeLine] = field(default_factory=set)
    unnamed: set[str] = field(default_factory=set)
    code: CodeShelf = field(default_factory=CodeShelf)
    problems: list[tuple[CodeLine, str, str]] = field(default_factory=list)
    limits: Mapping[str, int | str] = field(default_factory=dict)
    ship: Sequence[str] = ()

    # --- what calls leave --------------------------------------------------------------------------------

    def note(self, path: str, text: str) -> None:
        """Something is wrong with the call that is being made."""
        self.problems.append((here(), path, text))

    def add_stream(self, name: str, fields: Mapping[str, Any]) -> None:
        """An entry below ``streams``."""
        self._add(self.streams, f"streams.{name}", name, fields, "read it once, and use what read() returned again")

    def add_sink(self, stream: str, kind: str, options: Mapping[str, Any]) -> None:
        """An entry below ``sinks``."""
        fix = "a stream has one; let a map or filter make a second stream of it"
        self._add(self.sinks, f"sinks.{stream}", stream, {kind: options}, fix)

    def add_computation(self, name: str, inputs: Sequence[Input], fields: Mapping[str, Any]) -> None:
        """An entry below ``computations``, under a name that :meth:`name_for` gave."""
        given: dict[str, Any] = {}
        for each in inputs:
            if each.stream in given:
                text = f"the stream {each.stream!r} is named twice in one flatten; name it once"
                self.note(f"computations.{name}.input.{each.stream}", text)
            key = self.keep(each.key, name, "key") if callable(each.key) else each.key
            given[each.stream] = At(each.place, {} if key is None else {"key": key})
        path = f"computations.{name}"
        self._add(self.computations, path, name, {"input": given, **fields}, "give this one another name=…")

    def name_for(self, name: str, output: str, word: str) -> str:
        """The name of a computation: as given, else that of its output, else a word; made unique unless given."""
        if name:
            return name
        wanted, number = output or word, 1
        found = wanted
        while found in self.computations:
            number += 1
            found = f"{wanted}_{number}"
        if not output:
            self.unnamed.add(found)
        return found

    def keep(self, thing: Any, *words: str) -> Code:
        """How the document names some code of the user's."""
        return self.code.put(thing, *words)

    def _add(self, place: dict[str, At], path: str, name: str, fields: Mapping[str, Any], fix: str) -> None:
        if name in place:
            first = place[name].place
            self.note(path, f"this name was given in line {first.line} already; {fix}")
        else:
            place[name] = At(here(), fields)

    # --- what becomes of them ----------------------------------------------------------------------------

    def document(self, file: str, prefix: str, plain_names: bool = True) -> Document:
        """The document, as seen from the pipeline's own file. Code without a name of its own is found by
        ``prefix.slug``; so is all code unless ``plain_names``."""
        problems = Problems(file)
        for place, path, text in self.problems:
            problems.add(place.seen_from(file), path, text)

        def name_of(code: Code) -> str:
            return (own_name(code.thing) if plain_names else "") or f"{prefix}.{code.slug}"

        for place in self.idle_windows:
            text = "this window does nothing; write .aggregate({'hits': agg.count()}) or .process(Class) after it"
            problems.add(place.seen_from(file), "", text)
        writer = NodeWriter(file, name_of, problems.add)
        parts: dict[str, Any] = {"pipeline": self.name}
        if self.limits:
            parts["limits"] = self.limits
        if self.ship:
            parts["ship"] = self.ship
        if self.streams:
            parts["streams"] = self.streams
        else:
            text = "the pipeline reads nothing; write for example read('hits', FileSource('hits.jsonl', 'jsonl'), …)"
            problems.add(self.place.seen_from(file), "streams", text)
        computations = fused(self.computations, self.unnamed, {*self.sinks, *self.streams})
        top: YamlNode = writer.node({**parts, "computations": computations, "sinks": self.sinks}, self.place)
        return Document(top, problems)
