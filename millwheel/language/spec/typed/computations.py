"""The decimals of a computation: its expressions over whole units, and the kinds of the fields of
its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millwheel.connect.lookups.base import Lookup
from millwheel.core.aggregates.functions import FUNCTIONS as AGGREGATES
from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, KeptKinds
from millwheel.core.pipeline.work import (
    AggregateSpec,
    AggregationSpec,
    BoundSpec,
    BranchesSpec,
    DeduplicateSpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepKind,
    StepSpec,
    StepsSpec,
    TopSpec,
)
from millwheel.errors import MillwheelError
from millwheel.language.spec.typed.decimals import Fields, has_decimals, scales_of, text_of
from millwheel.language.spec.typed.expressions import Path, changed

_SAME = ("sum", "min", "max", "first", "last")
"""Aggregates whose result is of the kind of their argument."""
_COUNTS = ("count", "count_distinct", "approx_count_distinct")
_BOUNDS = dict.fromkeys(("window_start", "window_end"), KIND)
_LISTS = ("collect", "top_k")
"""Aggregates whose result is a list of values of the kind of their argument."""
_JOINS = (JoinSpec, RegularJoinSpec, IntervalJoinSpec)
_ASKED_BY = ("enrich", "by")
"""Where the expressions stand by which another system is asked."""
InUnits = Callable[[str, Fields, Path], tuple[str, Any]]
"""From an expression over fields of these kinds, which stands at a place of the computation, to the
one over units, and its kind."""


def merged(streams: Sequence[Fields]) -> Fields | None:
    """The fields of records of any of the streams; None where some have other decimals."""
    scales = [scales_of(each) for each in streams]
    if any(each != scales[0] for each in scales):
        return None
    common: dict[str, Any] = {}
    for fields in streams:
        for name, kind in fields.items():
            common[name] = kind if common.get(name, kind) == kind else ""
    return common


def outputs_of(computation: ComputationSpec) -> set[str]:
    """The streams that it produces."""
    branches = computation.work.branches if isinstance(computation.work, BranchesSpec) else ()
    side = [computation.late_side] if computation.late_side else []
    return {*computation.outputs, *(each.stream for each in branches), *side}


@dataclass(slots=True)
class DecimalWork:
    """A computation whose ``inputs`` have fields of these kinds, some of which may be decimals.
    :meth:`through` changes it, and finds the kinds of the ``outputs`` by stream, and of the values
    that it keeps for queries (``kept``). ``note`` notes a problem at a place of it, and ``build``
    makes its lookup."""

    computation: ComputationSpec
    inputs: Mapping[str, Fields]
    in_units: InUnits
    note: Callable[[Path, str], None]
    build: Callable[[LookupSpec], Lookup]
    fields: Fields = field(default_factory=dict)
    """The fields of all inputs whose records its expressions read; none for a join, whose inputs
    may differ."""
    kinds: dict[Path, Any] = field(default_factory=dict)
    """The kinds of its expressions."""
    outputs: dict[str, Fields] = field(default_factory=dict)
    kept: KeptKinds | None = None

    @property
    def given(self) -> bool:
        """Whether there are decimals in its inputs."""
        return any(map(has_decimals, self.inputs.values()))

    def through(self) -> None:
        """Change its expressions, and find the kinds of its results."""
        work = self.computation.work
        taken = {} if isinstance(work, _JOINS) else merged(self._read())
        if taken is None:
            self.note((), "its inputs have decimals in fields that differ. Declare them alike")
            return
        self.fields = taken
        self._expressions()
        self._same_keys()
        match work:
            case JoinSpec() | RegularJoinSpec() | IntervalJoinSpec():
                self._join(work)
            case StepsSpec():
                self._steps(work)
            case BranchesSpec() | TopSpec() | DeduplicateSpec():
                rank = work.rank if isinstance(work, TopSpec) else ""
                self._give({**self.fields, rank: "int"} if rank else self.fields)
            case EnrichSpec(name=name, stream=stream):
                self._give({**self.fields, name: self.inputs[stream]})
            case LookupSpec():
                self._look_up(work)
            case AggregationSpec() | OverSpec() | SlicesSpec():
                self._give(self._results(work))
            case _ if self.given or any(map(has_decimals, self.kinds.values())):
                self.note(
                    (),
                    "it does not take decimals, and its input has some. In front of it, write map"
                    " with float(…) or str(…)",
                )
        if self.computation.late_side:
            self.outputs[self.computation.late_side] = self.fields

    def _read(self) -> list[Fields]:
        """The fields of the inputs whose records it reads by itself."""
        work = self.computation.work
        table = work.stream if isinstance(work, EnrichSpec) else ""
        return [fields for name, fields in self.inputs.items() if name != table]

    def _same_keys(self) -> None:
        keys = [list(self._key(of).values()) for of in self.computation.inputs]
        scales = [
            [each if has_decimals(each) else None for each in key]
            if any(map(has_decimals, key))
            else []
            for key in keys
        ]
        if any(each != scales[0] for each in scales):
            self.note(("input",), "decimals of its keys differ, or meet others. Declare them alike")

    def _join(self, work: JoinSpec | RegularJoinSpec | IntervalJoinSpec) -> None:
        first = self.computation.inputs[0]
        kinds = {**self._key(first), **_BOUNDS, **self.inputs}
        if not work.kind.in_pairs:
            kinds = {**self.inputs[first.stream], **_BOUNDS}
        if not isinstance(work, JoinSpec):
            kinds = {name: kind for name, kind in kinds.items() if name not in _BOUNDS}
        if isinstance(work, IntervalJoinSpec):
            froms, untils = (tuple(map(self._bound, each)) for each in (work.froms, work.untils))
            work = replace(work, froms=froms, untils=untils)
            self.computation = replace(self.computation, work=work)
        self._give(kinds)

    def _bound(self, bound: BoundSpec) -> BoundSpec:
        return replace(bound, expression=self.in_units(bound.expression, self.inputs, ("join",))[0])

    def _look_up(self, work: LookupSpec) -> None:
        """It is asked by texts of its decimals, with all digits."""
        if self.given and not work.by:
            by = tuple(self._asked_by(text) for text in self._own_by(work))
            self.computation = replace(self.computation, work=replace(work, by=by))
        self._give({**self.fields, **dict.fromkeys([work.name, *work.fields], "")})

    def _own_by(self, work: LookupSpec) -> tuple[str, ...]:
        """The expressions that the lookup names itself."""
        try:
            return self.build(work).by
        except (MillwheelError, ValueError) as error:
            self.note(("enrich",), str(error))
            return ()

    def _asked_by(self, text: str) -> str:
        made, kind = self.in_units(text, self.fields, _ASKED_BY)
        return text_of(made, kind) if isinstance(kind, int) else made

    def _give(self, fields: Fields) -> None:
        for name in outputs_of(self.computation):
            self.outputs[name] = fields

    def _expressions(self) -> None:
        """Change the expressions over records."""

        def change(text: str, path: Path) -> str:
            fields = self.inputs[path[1]] if path[0] == "input" else self.fields
            if path == _ASKED_BY:
                return self._asked_by(text)
            made, kind = self.in_units(text, fields, path)
            self.kinds.setdefault(path, kind)
            return made

        self.computation = changed(self.computation, change)

    def _key(self, own_input: InputSpec) -> dict[str, Any]:
        """The kinds of the parts of the key of an input."""
        if own_input.key.plain:
            fields = self.inputs[own_input.stream]
            return {name: fields.get(name, "") for name in own_input.key.names}
        return {
            name: self.kinds.get(("input", own_input.stream, "key", name), "")
            for name in own_input.key.fields
        }

    def _steps(self, work: StepsSpec) -> None:
        """The first of them once more, which stands among the expressions over its input."""
        fields, steps = self.fields, []
        for at, step in enumerate(work.steps):
            if step.function and has_decimals(fields):
                self.note(
                    (),
                    f"{step.function} would get decimals as whole units; write map with float(…)"
                    " in front of it, or an expression",
                )
                return
            made, fields = self._step(step, fields, ("steps", str(at)))
            steps.append(made)
        self.computation = replace(self.computation, work=StepsSpec(tuple(steps)))
        self._give(fields)

    def _step(self, step: StepSpec, fields: Fields, path: Path) -> tuple[StepSpec, Fields]:
        """A step over units, and the fields of its results."""
        made = {
            name: self.in_units(text, fields, (*path, name)) for name, text in step.fields.items()
        }
        text, whole = self.in_units(step.expression, fields, path) if step.expression else ("", "")
        changed_step = replace(
            step, expression=text, fields={name: each for name, (each, _) in made.items()}
        )
        if step.kind is StepKind.FILTER:
            return changed_step, fields
        if step.kind is StepKind.FLAT_MAP and made:
            entries = {
                name: each[0] if isinstance(each, list) and each else ""
                for name, (_, each) in made.items()
            }
            return changed_step, {**fields, **entries}
        if step.kind is StepKind.FLAT_MAP and isinstance(whole, list):
            whole = whole[0]
        if not made and isinstance(whole, Mapping):
            return changed_step, whole
        if not made and has_decimals(whole):
            self.note(path, "a decimal alone is not a record: write map: {NAME: …}")
        return changed_step, {name: each for name, (_, each) in made.items()}

    def _results(self, work: AggregationSpec | OverSpec | SlicesSpec) -> Fields:
        """The kinds of the fields of its results, and of the values that it keeps for queries."""
        kinds = {
            name: kind for each in self.computation.inputs for name, kind in self._key(each).items()
        }
        if self.computation.windowed is not None and not self.computation.is_change_log:
            kinds = {**_BOUNDS, **kinds}
        key = tuple(self._key(self.computation.inputs[0]).values())
        kept = {each.name: self._aggregate(each) for each in work.aggregates}
        if isinstance(work, OverSpec):
            return {**self.fields, **kinds, **kept}
        if isinstance(work, SlicesSpec):
            self.kept = KeptKinds(key, kept)
            return {}
        if not work.aggregates and has_decimals(self.fields):
            self.note(
                (), "a window without aggregates takes no decimals; write aggregate: {NAME: …}"
            )
        kinds.update(kept)
        then = {}
        for name, text in work.then.items():
            then[name], kinds[name] = self.in_units(text, kinds, ("then", name))
        having = self.in_units(work.having, kinds, ("having",))[0] if work.having else ""
        changed_work = self.computation.work_as(AggregationSpec)
        self.computation = replace(
            self.computation, work=replace(changed_work, then=then, having=having)
        )
        self.kept = KeptKinds(key, kept)
        return kinds

    def _aggregate(self, aggregate: AggregateSpec) -> Any:
        """The kind of its result."""
        name, path = aggregate.function, ("aggregate", aggregate.name)
        kind = self.kinds.get(path, "") if aggregate.argument else ""
        if name in _SAME:
            return kind
        if name in _LISTS:
            return [kind]
        if name in AGGREGATES and AGGREGATES[name].of_rows:
            rank = aggregate.options.get("rank")
            row = {**self.fields, rank: "int"} if rank else self.fields
            return [row] if name == "top_rows" else row
        if ":" in name and self.given:
            self.note(path, f"{name} would give decimals as whole units; write float(…) before it")
        elif name not in _COUNTS and has_decimals(kind):
            cure = "then: {NAME: total / n}, of a sum and a count, or " if name == "mean" else ""
            self.note(path, f"{name} takes no decimal; write {cure}float(…)")
        return "int" if name in _COUNTS else ""
