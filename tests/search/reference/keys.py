"""Keys of records, taken by other means than the product's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.errors import RecordError
from millwheel.language.spec.key_extractors import load_extractor

CALCULATED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "upper(k)": ("k", lambda k: {"a": "A", "b": "B"}[k]),
    "concat(k, '!')": ("k", lambda k: f"{k}!"),
    "k if k == 'a' else 'others'": ("k", lambda k: {"a": "a"}.get(k, "others")),
    "null if k == 'b' else k": ("k", lambda k: None if k == "b" else k),
    "n % 3": ("n", lambda n: [0, 1, 2][n - 3 * Fraction(n, 3).__floor__()]),
    "n // 2": ("n", lambda n: Fraction(n, 2).__floor__()),
    "n * n - 4": ("n", lambda n: (n - 2) * (n + 2)),
    "6 // (n - 3)": ("n", lambda n: Fraction(6, n - 3).__floor__()),
    "trunc(n * 500000, '1s')": ("n", lambda n: Fraction(n, 2).__floor__() * 10**6),
    "u + 1": ("u", lambda u: -~u),
    "n / 2": ("n", None),  # no key
}
"""Each with the field that it reads. None: what the product says of it is taken as it is."""
_NULL = ()


def key_taker(key: KeySpec, folder: str) -> Callable[[Any], Any] | None:
    """A record's value -> its key in a consumer; None where it is that of the producer. Raises
    RecordError for a record without one."""
    if key.kind is KeyKind.RECORD:
        return None
    if key.kind is KeyKind.ALL:
        return lambda value: "all"
    if key.kind is KeyKind.EXPRESSIONS:
        parts = [_part(_computed(text), key.nulls, f"`{text}` is null") for text in key.texts]
    elif key.nulls:
        parts = [_part(_field(name), True, "") for name in key.names]
    else:
        return load_extractor(key, folder)
    return lambda value: tuple([part(value) for part in parts]) if parts[1:] else parts[0](value)


def key_row(key: KeySpec, value: Any) -> dict[str, Any]:
    """The fields of a result that hold a key."""
    if key.kind is KeyKind.ALL:
        return {}
    named = key.kind in (KeyKind.FIELD, KeyKind.FIELDS, KeyKind.EXPRESSIONS)
    names = key.names if named else ("key",)
    parts = value if len(names) > 1 and isinstance(value, tuple) else (value,)
    shown = [None if key.nulls and part == _NULL else part for part in parts]
    return dict(zip(names, shown, strict=False))


def _field(name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, dict) or name not in value:
            return compile_expression(name).evaluate(value)  # whose words are the product's
        return value[name]

    return read


def _computed(text: str) -> Callable[[Any], Any]:
    # what is not there is over whole units of a decimal
    needs, plain = CALCULATED.get(text, ("n", None))
    product = compile_expression(text).evaluate

    def read(value: Any) -> Any:
        given = value.get(needs) if isinstance(value, dict) else None
        if plain is None or type(given) is not (str if needs == "k" else int):
            return product(value)  # the words about what is no such field are the product's
        try:
            return plain(given)
        except (KeyError, ZeroDivisionError):
            return product(value)

    return read


def _part(read: Callable[[Any], Any], nulls: bool, why: str) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        part = read(value)
        if part is not None:
            return part
        if nulls:
            return _NULL
        raise RecordError(f"missing key: {why}; the key of an input takes null_key: group")

    return take
