"""Functions that read the key of a record from its value, as a pipeline names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from millwheel.connect.python_objects import load_object
from millwheel.core.aggregates.plain_data import copied
from millwheel.core.expressions.fields import field_reader, missing_field
from millwheel.core.expressions.language import BUILT_IN, Expression, Language
from millwheel.core.model.keys import NULL, Key
from millwheel.core.pipeline.dictionaries import partitioned
from millwheel.core.pipeline.keys import EVERYTHING, KeyKind, KeySpec
from millwheel.errors import PipelineError, RecordError, invariant


def load_extractor(
    spec: KeySpec, folder: str, language: Language = BUILT_IN
) -> Callable[[Any], Key]:
    """A function from a record's value to its key, for every kind but ``RECORD`` (which reads no
    value). ``language`` is that of its expressions.

    The function raises RecordError ("missing key: …") if a field is missing or None. It does not
    check that its result can be a key. Raises PipelineError if the user's function cannot be
    loaded.
    """
    invariant(
        spec.kind is not KeyKind.RECORD,
        "the key of a record that its producer gave is not extracted",
    )
    if spec.partitions:
        return partitioned(_field_key(spec.names[0]), spec.partitions)
    if spec.kind is KeyKind.FUNCTION:
        function = load_object(spec.names[0], folder)
        if not callable(function):
            raise PipelineError(
                f"{spec.names[0]} is a {type(function).__name__}, not a function of a record's"
                " value"
            )
        return lambda value: function(copied(value))  # its own: others see the record, too
    if spec.kind is KeyKind.ALL:
        return lambda value: EVERYTHING
    if spec.kind is KeyKind.EXPRESSIONS:
        return _parts_key(
            [_expression_key(language.compile(text), spec.nulls) for text in spec.texts]
        )
    if spec.nulls:
        return _parts_key([_or_null(field_reader(name)) for name in spec.names])
    if spec.kind is KeyKind.FIELD:
        return _field_key(spec.names[0])
    return _fields_key(spec.names)


_CURE = "; the key of an input takes null_key: group"


def _expression_key(expression: Expression, nulls: bool) -> Callable[[Any], Key]:
    evaluate, text = expression.evaluate, expression.text
    if nulls:
        return _or_null(evaluate)

    def extract(value: Any) -> Key:
        key = evaluate(value)
        if key is None:
            raise RecordError(f"missing key: `{text}` is null{_CURE}")
        return key

    return extract


def _or_null(read: Callable[[Any], Any]) -> Callable[[Any], Key]:
    """With a key for null, too."""

    def extract(value: Any) -> Key:
        key = read(value)
        if key is None:
            return NULL
        if isinstance(key, list | tuple) and not key:
            raise RecordError("a key cannot be an empty list where null is a group of its own")
        return key

    return extract


def _parts_key(parts: Sequence[Callable[[Any], Key]]) -> Callable[[Any], Key]:
    if len(parts) == 1:
        return parts[0]
    return lambda value: tuple([part(value) for part in parts])


def _field_key(name: str) -> Callable[[Any], Key]:
    read = field_reader(name)

    def extract(value: Any) -> Key:
        try:
            key = value[name] if type(value) is dict else read(value)
        except (KeyError, RecordError):
            raise missing_field(name, value, "key") from None
        if key is None:
            raise RecordError(f"missing key: the field {name!r} is empty (null){_CURE}")
        return key

    return extract


def _fields_key(names: tuple[str, ...]) -> Callable[[Any], Key]:
    parts = [_field_key(name) for name in names]
    pick: Callable[[Any], Any] = (
        itemgetter(*names) if len(names) > 1 else lambda value: (value[names[0]],)
    )

    def extract(value: Any) -> Key:
        if type(value) is dict:
            try:
                key = pick(value)
            except KeyError:
                key = None
            if key is not None and None not in key:
                return key
        return tuple([part(value) for part in parts])

    return extract
