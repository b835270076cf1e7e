from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from millwheel.fluent import ends
from millwheel.fluent.ends import (
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSource,
    InjectionSource,
    OtherSink,
    OtherSource,
    StdoutSink,
    kind_of,
    param,
    secret,
)
from millwheel.sinks import known_sinks
from millwheel.sources import known_sources


def test_only_what_was_given_is_an_option() -> None:
    """What is left out has the default of the source, which may change."""
    assert FileSource("a", "jsonl").options() == {"path": "a", "format": "jsonl"}
    assert FileSource("a", "csv", follow=False).options()["follow"] is False
    assert InjectionSource().options() == {}
    assert HttpSource(8080, max_requests=3).options() == {"port": 8080, "max_requests": 3}
    assert GeneratorSource(rate=0, count=5).options() == {"rate": 0, "count": 5}


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(ends).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
)
def test_every_kind_is_one_that_yaml_knows(kind: Any) -> None:
    if kind.kind:
        known = known_sinks() if issubclass(kind, ends.DeclaredSink) else known_sources()
        assert kind.kind in known


def test_those_of_others_have_the_names_that_they_registered() -> None:
    settings = {"a": 1}
    for made in (OtherSource("theirs", settings), OtherSink("theirs", settings)):
        assert (kind_of(made), made.options()) == ("theirs", settings)
        made.options()["a"] = 2
        assert made.options() == {"a": 1}
    assert (kind_of(FileSink("x")), kind_of(StdoutSink())) == ("files", "stdout")


def test_parameters_and_secrets_are_written_as_in_yaml() -> None:
    assert (param("a"), param("a", 5), secret("PG")) == ("${a}", "${a:-5}", "${secret:PG}")
