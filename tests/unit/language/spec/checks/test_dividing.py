"""What the input of an aggregation says about dividing its keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    Delivery,
    InputSpec,
    PipelineSpec,
    Productions,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.language.spec.checks.dividing import why_not_divided
from tests.computations import computation_spec

KEY = KeySpec(KeyKind.FIELD, ("k",))
WHOLE = computation_spec(
    "c",
    (InputSpec("hits", KEY),),
    ("o",),
    window=WindowSpec("tumbling", {"size_us": 60}),
    aggregates=(AggregateSpec("n", "count", "", "", {}),),
    scatter=4,
    divided=Divided.TAG,
)


def reason(divided: Divided, source: str = "files", id: str = "", **before: object) -> str:
    """Of hits that a source reads, or that a computation makes, if ``before`` says how."""
    streams = (StreamSpec("raw" if before else "hits", SourceSpec(source), id=id),)
    made = computation_spec("b", (InputSpec("raw", KEY),), ("hits",), **before)
    whole = replace(WHOLE, divided=divided)
    return why_not_divided(
        whole, PipelineSpec("p", streams, (made, whole) if before else (whole,), (), "")
    )


@pytest.mark.parametrize("divided", list(Divided))
def test_sources_injection_and_productions_can_be_divided_in_each_way(divided: Divided) -> None:
    assert reason(divided) == ""
    assert reason(divided, "injection") == ""
    assert reason(divided, "injection", "id") == "", "ids are used up where records come in"
    assert reason(divided, productions=Productions.STRONG) == ""
    assert reason(divided, productions=Productions.WEAK, delivery=Delivery.AT_LEAST_ONCE) == "", (
        "they have no ids"
    )


@pytest.mark.parametrize("divided", [each for each in Divided if each.by_tables])
def test_what_must_reach_the_instance_that_knows_its_id_cannot_go_by_a_table(
    divided: Divided,
) -> None:
    read = reason(divided, id="id")
    assert "a copy may come by another partition" in read
    assert read.endswith("write scatter(4), which goes by the id")
    weak = reason(divided, productions=Productions.WEAK)
    assert "productions of b are weak: it may make them again after a crash" in weak
    assert divided.value in weak


def test_scatter_goes_by_the_id() -> None:
    assert reason(Divided.ALL, id="id") == ""
    assert reason(Divided.ALL, productions=Productions.WEAK) == ""


def test_dead_letters_of_a_source_are_made_again() -> None:
    whole = computation_spec(
        "c",
        (InputSpec("dead_letters", KEY),),
        ("o",),
        window=WindowSpec("tumbling", {"size_us": 60}),
        scatter=4,
        divided=Divided.PKG,
    )
    found = why_not_divided(
        whole, PipelineSpec("p", (StreamSpec("hits", SourceSpec("files")),), (whole,), (), "")
    )
    assert "makes their dead letters again" in found
    assert "write scatter(4)" in found
