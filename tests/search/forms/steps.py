"""Draws the expressions of steps: values of each kind, tests, and lists, over fields of known
types."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

_WHOLE = ("1", "-3", "7", "4611686018427387904")
_REAL = ("0.5", "-2.0", "1e300")
_TEXTS = ("'a'", "'é'", "''")


def value(rng: Random, fields: Mapping[str, str], depth: int = 2) -> tuple[str, str]:
    """An expression, and the kind of its values."""
    if rng.random() < 0.4 or not depth:
        return _leaf(rng, fields)
    kind = rng.choice(["int", "float", "float", "str", "bool", "choice"])
    if kind == "bool":
        return test(rng, fields), "bool"
    if kind == "choice":
        yes, of = value(rng, fields, depth - 1)
        return rng.choice(
            [
                f"({yes} if {test(rng, fields)} else {_of(rng, of, fields)})",
                f"case({test(rng, fields)}, {yes}, {_of(rng, of, fields)})",
            ]
        ), of
    if kind == "str":
        text = _of(rng, "str", fields)
        shapes = [
            f"upper({text})",
            f"substr({text}, 1)",
            f"concat({text}, 'z')",
            f"part({text}, 'a', 1)",
            f"regexp_extract({text}, '^(a)|b')",
        ]
        return rng.choice(shapes), "str"
    one, other = (_of(rng, rng.choice(["int", kind]), fields) for _ in range(2))
    if kind == "int":
        one, other = (_of(rng, "int", fields) for _ in range(2))
        shapes = [f"{one} + {other}", f"{one} * {other}", f"{one} % 7", f"{one} // -3"]
    else:
        shapes = [f"{one} / {other}", f"{one} * {other} + 0.5", f"{one} - 0.25 * {other}"]
    return f"({rng.choice(shapes)})", kind


def test(rng: Random, fields: Mapping[str, str]) -> str:
    """A condition."""
    kind = rng.choice(["int", "float", "str"])
    if fields and rng.random() < 0.15:
        return f"{rng.choice(sorted(fields))} {rng.choice(['!= null', 'is None'])}"
    plain = f"{_of(rng, kind, fields)} {rng.choice(['<', '>=', '!='])} {_of(rng, kind, fields)}"
    if rng.random() < 0.3:
        return f"({plain} {rng.choice(['and', 'or'])} {test(rng, fields)})"
    return f"not {plain}" if rng.random() < 0.1 else plain


def _leaf(rng: Random, fields: Mapping[str, str]) -> tuple[str, str]:
    if rng.random() < 0.8 and (known := [name for name in fields if fields[name]]):
        name = rng.choice(sorted(known))
        return name, fields[name]
    kind = rng.choice(["int", "float", "str"])
    return _constant(rng, kind), kind


def _of(rng: Random, kind: str, fields: Mapping[str, str]) -> str:
    """A field or a constant of a kind."""
    fitting = sorted(name for name in fields if fields[name] == kind)
    return rng.choice(fitting) if fitting and rng.random() < 0.7 else _constant(rng, kind)


def _constant(rng: Random, kind: str) -> str:
    if kind == "bool":
        return "1 > 2"
    return rng.choice({"int": _WHOLE, "float": _REAL, "str": _TEXTS}[kind])


def multiplied(rng: Random, tree: dict[str, Any], fields: Mapping[str, Mapping[str, str]]) -> bool:
    """Adds what makes several records of one, sometimes, and what is made of them."""
    if rng.random() < 0.7:
        return False
    known = {name: kind for name, kind in fields["one"].items() if kind}
    made: list[dict[str, Any]] = []
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.4:
            made.append({"filter": test(rng, known)})
        entries, kind = _entries(rng, known)
        name = rng.choice(["entry", "other", *sorted(known)])
        made.append({"flat_map": {name: entries}})
        known = {**known, name: kind}
    if rng.random() < 0.6:
        drawn = {f"m{place}": value(rng, known)[0] for place in range(2)}
        made.append({"map": {**drawn, "entry": rng.choice(sorted(known))}})
    tree["computations"]["many"] = {"input": "one", "steps": made, "output": "many"}
    tree["sinks"]["many"] = {"stdout": {}}
    return True


def _entries(rng: Random, fields: Mapping[str, str]) -> tuple[str, str]:
    """A list, and the kind of its entries."""
    if rng.random() < 0.4:
        text = _of(rng, "str", fields)
        return f"split({rng.choice([text, f'upper({text})'])}, {rng.choice(_TEXTS[:2])})", "str"
    first, kind = value(rng, fields)
    others = [_of(rng, kind, fields) for _ in range(rng.choice([0, 1, 2]))]
    return f"[{', '.join([first, *others])}]", kind
