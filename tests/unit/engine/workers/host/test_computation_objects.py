from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import (
    BranchesSpec,
    BranchSpec,
    CallbackSpec,
    DeduplicateSpec,
    StepsSpec,
    TableSpec,
    Work,
)
from millwheel.engine.workers.host.computation_objects import computation_of
from millwheel.engine.workers.operators.record_computations import Branched, Stepped, Tabled
from millwheel.errors import SetupError
from tests.computations import computation_spec

PIPELINE = PipelineSpec("p", (), (), (), "/")


class Limited(Computation):
    def __init__(self, limit: int) -> None:
        self.limit = limit


class Reading(Computation):
    def __init__(self) -> None:
        Path("/nowhere/model").read_text()


def instance(work: Work, kind: Any = None) -> Any:
    return computation_of(
        computation_spec("c", work=work, where="p.yaml:3"), PIPELINE, lambda _: kind
    )


def test_code_of_the_users_gets_its_options() -> None:
    assert instance(CallbackSpec("m:Limited", {"limit": 3}), Limited).limit == 3


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Limited, r"p.yaml:3: m:C\({}\) cannot be built: .*limit"),
        (Reading, "p.yaml:3: m:C cannot be built: .*model"),
        (dict, "p.yaml:3: m:C is not a millwheel.Computation"),
    ],
)
def test_what_cannot_be_built_is_named_with_its_line(kind: Any, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        instance(CallbackSpec("m:C"), kind)


def test_work_of_this_project_takes_its_records_like_code_of_the_users() -> None:
    assert isinstance(instance(StepsSpec(())), Stepped)
    assert isinstance(instance(BranchesSpec((BranchSpec("o"),))), Branched)
    assert isinstance(instance(TableSpec("rows")), Tabled)
    assert isinstance(instance(DeduplicateSpec(5)), Computation)
