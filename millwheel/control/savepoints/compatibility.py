"""Decides whether a pipeline can continue with the state of another one: compares two blueprints,
change by change.

``millwheel explain-upgrade``, a start from a savepoint, and a start of a changed pipeline on its
root use the same function and the same messages. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millwheel.control.savepoints.blueprint import Blueprint, NodeBlueprint
from millwheel.control.savepoints.rules import (
    COMPUTATION_RULES,
    END_RULES,
    NEW_NAME,
    Compatibility,
    inputs_changed,
)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, at a node ("" for the pipeline), in a sentence."""

    node: str
    verdict: Compatibility
    sentence: str
    correctable: bool = False
    """Refused only because of data that the node keeps in the old form: open windows, and groups on
    their way to it."""

    def __str__(self) -> str:
        return f"{self.node}: {self.sentence}" if self.node else self.sentence


_CORRECTABLE = frozenset({"window", "aggregates", "speaking", "slices", "columns"})
_RULES = {**END_RULES, **COMPUTATION_RULES}


def compare(old: Blueprint, new: Blueprint) -> list[Change]:
    """All differences, in the order of the nodes; [] for the same pipeline with other code."""
    changes: list[Change] = []
    if old.pipeline != new.pipeline:
        text = f"the pipeline's name was {old.pipeline!r} and is {new.pipeline!r}; keep the name"
        changes.append(Change("", Compatibility.REFUSED, text))
    for name, node in new.nodes.items():
        before = old.nodes.get(name)
        if before is None:
            changes.append(Change(name, *_added(node, old)))
        elif before.form != node.form:
            text = (
                f"it was of the form {before.form!r} and is {node.form!r}, whose state is"
                f" different; {NEW_NAME}"
            )
            changes.append(Change(name, Compatibility.REFUSED, text))
        else:
            changes += [
                Change(
                    name,
                    *difference,
                    correctable=facet in _CORRECTABLE and difference[0] is Compatibility.REFUSED,
                )
                for facet, difference in _differences(before, node)
            ]
            changes += [Change(name, *difference) for difference in inputs_changed(before, node)]
    for name in old.nodes.keys() - new.nodes.keys():
        changes.append(Change(name, Compatibility.SAVEPOINT, _removed(old.nodes[name])))
    order = {name: index for index, name in enumerate([*new.nodes, *old.nodes])}
    return sorted(changes, key=lambda change: order.get(change.node, -1))


def corrected(changes: list[Change], keeps: Callable[[str], bool]) -> list[Change]:
    """The same changes, but nodes that keep nothing in the form of their settings may be corrected,
    such as an aggregation that has failed on every record."""
    return [
        (
            replace(
                each,
                verdict=Compatibility.FREE,
                sentence=f"{each.sentence.partition(',')[0]}; it keeps nothing yet",
            )
            if each.correctable and not keeps(each.node)
            else each
        )
        for each in changes
    ]


def worst(changes: list[Change]) -> Compatibility:
    """The strictest requirement of all changes."""
    verdicts = {change.verdict for change in changes}
    return next(
        (each for each in (Compatibility.REFUSED, Compatibility.SAVEPOINT) if each in verdicts),
        Compatibility.FREE,
    )


def _added(node: NodeBlueprint, old: Blueprint) -> tuple[Compatibility, str]:
    if node.form == "source":
        return Compatibility.SAVEPOINT, "it is new and is read from its beginning"
    if node.form == "table" and f"source.{node.facets['pairing'][0]}" in old.nodes:
        text = (
            "it is new, and would begin with the first change, whose rows the state behind it has"
            " counted already; start without a savepoint on a new root, which reads the changes"
            " from their beginning"
        )
        return Compatibility.REFUSED, text
    return Compatibility.SAVEPOINT, "it is new: it starts empty, with records after the savepoint"


def _removed(node: NodeBlueprint) -> str:
    what = {"source": "its positions are", "sink": "the list of its files is"}
    return (
        f"it is removed: {what.get(node.form, 'its state, timers and open windows are')} left"
        " behind"
    )


def _differences(
    old: NodeBlueprint, new: NodeBlueprint
) -> Iterator[tuple[str, tuple[Compatibility, str]]]:
    for facet in [*new.facets, *(name for name in old.facets if name not in new.facets)]:
        before, after = old.facets.get(facet), new.facets.get(facet)
        if before != after:
            for difference in _RULES[facet](before, after, new):
                yield facet, difference
