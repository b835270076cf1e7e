"""What a case of the search is: a pipeline as YAML text, a script of what arrives when, and what
came of it.

A script says what happens outside, one action after the other; before each action everything has
come to rest. So a case leaves nothing to chance but what docs/guarantees.md leaves free (see
``compare.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from millwheel.connect import plug_ins
from millwheel.core.model.records import Domain
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.spec import pipelines
from millwheel.language.spec.pipelines import check_document
from millwheel.language.spec.python_files import Document
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems
from tests.sim.replacing import replaced

FOLDER = Path(__file__).parent
"""Where the pipelines' code is looked for: ``callbacks:Name`` is in ``callbacks.py`` beside this
file."""

PARTITION = "pushed"
"""The partition of a push that names none, as in PipelineHarness."""


@dataclass(frozen=True, slots=True)
class Push:
    """Records of one partition of a stream that arrive together: one read of the source."""

    stream: str
    values: tuple[Any, ...]
    partition: str = PARTITION


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record before ``t`` follows in a stream (None: in all), or in one partition of it. Only in
    cases whose watermark is ``stated``; in the others ``max_delay`` and ``idle_after`` make it."""

    t: int
    stream: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock goes on to ``t`` (µs)."""

    t: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The input of a stream (None: of all) has ended."""

    stream: str | None = None


Action = Push | Watermark | Clock | Finish


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline and its input.

    ``stated``: the watermark is what the script says (``Watermark``), and ``max_delay``,
    ``idle_after`` have no say. Else sources judge by their own options, as in production: the
    watermark of a partition follows its newest timestamp. ``now`` is what the wall clock shows at
    first; without it (only if stated) it shows 0, and no record lies too far in the future.
    ``features`` are the words for what is drawn, such as ``session`` or ``ttl``.
    """

    seed: int
    yaml: str
    script: tuple[Action, ...]
    stated: bool = True
    now: int | None = None
    features: frozenset[str] = frozenset()
    refused: bool = False
    """The pages refuse the pipeline, so the loader must."""

    def spec(self) -> PipelineSpec:
        """The pipeline as the real loader reads it. PipelineError when it is refused."""
        return load(self.yaml)

    def with_script(self, script: tuple[Action, ...]) -> Case:
        """The same pipeline with other input."""
        return replace(self, script=script)


@lru_cache(maxsize=256)
def load(yaml: str) -> PipelineSpec:
    """A pipeline from its text; its code lies beside this file."""
    problems = Problems(str(FOLDER / "pipeline.yaml"))
    top = parse(yaml, problems)
    if top is None:
        raise problems.error()
    return _checked(top, problems)


def load_tree(tree: Mapping[str, Any]) -> PipelineSpec:
    """A pipeline from the tree that its text would give: most of the time goes into reading
    text."""
    return _checked(_node(tree, ""), Problems(str(FOLDER / "pipeline.yaml")))


def _checked(top: YamlNode, problems: Problems) -> PipelineSpec:
    with _quickly():
        spec, _ = check_document(Document(top, problems), {}, {})
    return spec


def _node(value: Any, path: str) -> YamlNode:
    made = YamlNode(value, 1, path)
    if isinstance(value, Mapping):
        made.key_lines = dict.fromkeys(value, 1)
        made.value = {name: _node(inner, made.child_path(name)) for name, inner in value.items()}
    elif isinstance(value, list):
        made.value = [_node(inner, made.child_path(index)) for index, inner in enumerate(value)]
    else:
        made.text, made.plain = str(value), True
    return made


_installed = cache(plug_ins.entry_points)


@contextmanager
def _quickly() -> Iterator[None]:
    """Thousands of pipelines are loaded, with the same packages installed, and none is shipped."""
    with ExitStack() as stack:
        stack.enter_context(replaced(plug_ins, "entry_points", _installed))
        if hasattr(pipelines, "check_ship"):
            stack.enter_context(replaced(pipelines, "check_ship", lambda *_: None))
        yield


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a stream as it became visible. ``value`` is plain data."""

    key: Any
    timestamp: int
    value: Any


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it came from (computation or source), the reason, and the record it is
    about."""

    where: str
    reason: str
    about: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case. ``streams`` holds the rows of each stream that is produced or has a
    sink, those of one key in their order; ``standing`` the current rows in each ``upsert`` sink.
    ``counters`` are by computation: ``late``, ``duplicates``, ``dead_letters`` and the counters
    that callbacks count. ``state`` is what callback computations remember, by computation and key;
    ``timers`` what is set and has not fired, as (domain, tag, time)."""

    streams: Mapping[str, tuple[Row, ...]]
    letters: tuple[Letter, ...] = ()
    standing: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    state: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    timers: Mapping[str, Mapping[Any, tuple[tuple[Domain, str, int], ...]]] = field(
        default_factory=dict
    )
