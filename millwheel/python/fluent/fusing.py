"""Turns chains of steps into one computation.

Each computation costs commits and deliveries between shards. ``map``, ``flat_map`` and ``filter``
need neither a key nor state, so a chain of them becomes one computation. The chain ends where a
stream between two steps is visible elsewhere: it has a name, another consumer, a sink, or gets a
key there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from millwheel.language.spec.parts.steps import KINDS
from millwheel.python.fluent.code_lines import At

_OWN = ("input", "output", "steps", *KINDS)


def fused(
    computations: Mapping[str, At], unnamed: Collection[str], used: Collection[str]
) -> dict[str, At]:
    """The computations, with the steps of ``unnamed`` ones moved into their consumers. Streams that
    are ``used`` elsewhere stay."""
    consumers = Counter(stream for at in computations.values() for stream in at.value["input"])
    consumers.update(list(used))
    makers = Counter(stream for at in computations.values() for stream in _outputs(at.value))
    remaining: dict[str, At] = {}
    for name, at in computations.items():
        before = _only_input(at.value)
        if before in remaining and before in unnamed and consumers[before] == makers[before] == 1:
            first = remaining[before]
            if (
                _is_steps(at.value)
                and _is_steps(first.value)
                and _dials(at.value) == _dials(first.value)
            ):
                del remaining[before]
                at = At(at.code_line, _joined(first, at))
        remaining[name] = at
    return remaining


def _only_input(fields: Mapping[str, Any]) -> str:
    """The one input stream if it is consumed under its own key, else ""."""
    inputs = list(fields["input"].items())
    return inputs[0][0] if len(inputs) == 1 and not inputs[0][1].value else ""


def _outputs(fields: Mapping[str, Any]) -> list[str]:
    output = fields.get("output", [])
    return [output] if isinstance(output, str) else list(output)


def _is_steps(fields: Mapping[str, Any]) -> bool:
    return any(name in fields for name in ("steps", *KINDS))


def _dials(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OWN}


def _joined(first: At, second: At) -> dict[str, Any]:
    steps = [*_steps(first), *_steps(second)]
    return {
        "input": first.value["input"],
        "steps": steps,
        "output": second.value["output"],
        **_dials(second.value),
    }


def _steps(at: At) -> list[At]:
    """The steps of a computation, each with the line in which it was written."""
    if "steps" in at.value:
        return list(at.value["steps"])
    return [At(at.code_line, {name: at.value[name]}) for name in at.value if name in KINDS]
