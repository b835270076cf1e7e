"""Whether the keys of an aggregation can be divided, as far as its input decides it."""

from __future__ import annotations

from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, PipelineSpec

_INJECTION = "injection"


def why_not_divided(computation: ComputationSpec, spec: PipelineSpec) -> str:
    """Why keys cannot be divided as a computation asks, as a sentence with the fix; "" where they
    can."""
    if takes_retractions(computation, spec):
        return (
            "its input carries retractions, and one could come to another instance than the record"
            " that it takes back; leave skew out"
        )
    return _forgets_instances(computation, spec) if computation.divided.by_tables else ""


def _forgets_instances(computation: ComputationSpec, spec: PipelineSpec) -> str:
    """Why a record could come to another instance the next time that it is sent; "" if none can.

    Records that a source reads again are divided by the tables of its epochs; productions carry
    their instances."""
    name, way = computation.inputs[0].stream, computation.divided.value
    stream = next((each for each in spec.streams if each.name == name), None)
    if stream is not None and stream.source is not None:
        # Injected records are counted once by their ids before they are divided.
        if not stream.id or stream.source.kind == _INJECTION:
            return ""
        return (
            f"records of {name} have ids, and a copy may come by another partition, or later, when"
            f" {way} has another instance for its key than the one with the id; write"
            f" scatter({computation.scatter}), which goes by the id"
        )
    if name == DEAD_LETTERS:
        return (
            f"a source that reads records again makes their dead letters again, when {way} may have"
            " another instance for them than the one that has them; write"
            f" scatter({computation.scatter}), which goes by their numbers"
        )
    weak = [
        each.name
        for each in spec.computations
        if name in (*each.outputs, each.late_side) and each.identified
    ]
    if weak:
        return (
            f"productions of {weak[0]} are weak: it may make them again after a crash, when {way}"
            " has another instance for them than the one with their ids; write"
            f" scatter({computation.scatter}), which goes by the id"
        )
    return ""
