from __future__ import annotations

from millwheel.python.fluent.ends import OtherLookup, OtherSink, OtherSource, kind_of, param, secret
from millwheel.python.fluent.kinds import (
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSource,
    InjectionSource,
    StdoutSink,
)


def test_only_what_was_given_is_an_option() -> None:
    """What is left out has the default of the source, which may change."""
    assert FileSource("a", "jsonl").options() == {"path": "a", "format": "jsonl"}
    assert FileSource("a", "csv", follow=False).options()["follow"] is False
    assert InjectionSource().options() == {}
    assert HttpSource(8080, max_requests=3).options() == {"port": 8080, "max_requests": 3}
    assert GeneratorSource(rate=0, count=5).options() == {"rate": 0, "count": 5}


def test_those_of_others_have_the_names_that_they_registered() -> None:
    settings = {"a": 1}
    for made in (
        OtherSource("theirs", settings),
        OtherSink("theirs", settings),
        OtherLookup("theirs", settings),
    ):
        assert (kind_of(made), made.options()) == ("theirs", settings)
        made.options()["a"] = 2
        assert made.options() == {"a": 1}
    assert (kind_of(FileSink("x")), kind_of(StdoutSink())) == ("files", "stdout")


def test_parameters_and_secrets_are_written_as_in_yaml() -> None:
    assert (param("a"), param("a", 5), secret("PG")) == ("${a}", "${a:-5}", "${secret:PG}")
