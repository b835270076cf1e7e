"""The functions of ``functions:``, loaded from the user's code, and the boundary around them."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from millwheel.connect.python_objects import load_object
from millwheel.core.aggregates.plain_data import copied
from millwheel.core.expressions.declaration import MOST_ARGUMENTS, NullLogic, OwnFunction
from millwheel.core.expressions.language import BUILT_IN, Expression, Language, built_in
from millwheel.core.formats.codec import MOST_NESTING, encode_value, nests_too_deeply
from millwheel.core.model.failures import in_words
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import (
    CorruptionError,
    FencedError,
    InvariantError,
    PipelineError,
    RecordError,
)

FATAL = (CorruptionError, FencedError, InvariantError)
"""Errors that concern the whole shard, not a single record."""
_AS_THEY_ARE = frozenset((int, float, bool, type(None)))
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def passes(ex: BaseException) -> bool:
    """Whether an exception of user code ends the worker. A KeyboardInterrupt does where Python
    itself makes one of a signal; workers handle their signals in another way, so there it comes
    from the user's code."""
    if isinstance(ex, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(ex, FATAL)


def language_of(spec: PipelineSpec) -> Language:
    """The language of the expressions of a pipeline. Raises PipelineError for a function that
    cannot be loaded."""
    if not spec.functions:
        return built_in(spec.nulls)
    return Language(
        {
            name: own_function(
                name, load_object(target, spec.folder), spec.vectorized.get(name, "")
            )
            for name, target in spec.functions.items()
        },
        spec.nulls,
    )


def language_of_queries(spec: PipelineSpec) -> Language:
    """The language of its named queries, which have nulls of their own: an expression that cannot
    be computed with a null is null. Raises PipelineError for a function that cannot be loaded."""
    return language_of(replace(spec, nulls=NullLogic.ERROR))


_LANGUAGE: ContextVar[Language] = ContextVar("language of expressions", default=BUILT_IN)


@contextmanager
def expressions_in(language: Language) -> Iterator[None]:
    """Within it, sinks that are built or opened have their expressions in this language. Their
    constructors are those of connectors, which get only their options."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def expression_of(text: str) -> Expression:
    """An expression of an option, in the language of the pipeline whose sink is built or opened.
    Raises ValueError as ``compile_expression`` does."""
    return _LANGUAGE.get().compile(text)


def named_alone(
    functions: Mapping[str, str],
    nulls: NullLogic = NullLogic.ERROR,
    vectorized: Mapping[str, str] = MappingProxyType({}),
) -> Language:
    """The language with these functions, for checks: no user code is loaded or called."""
    if not functions:
        return built_in(nulls)
    own = {name: OwnFunction(name, _unloaded) for name in functions}
    for name, returns in vectorized.items():
        own[name] = OwnFunction(name, _unloaded, returns=returns, columns=_unloaded)
    return Language(own, nulls)


def own_function(name: str, function: Any, returns: str = "") -> OwnFunction:
    """A function under its name in expressions. With ``returns``, the kind of its values, it takes
    and gives arrays. Raises PipelineError unless it can be called."""
    if not callable(function):
        raise PipelineError(f"{name} is a {type(function).__name__}, not a function")
    least, most = _arity(function)
    columns: Callable[..., Any] | None = None
    if returns:
        from millwheel.connect.array_functions import ArrayFunction

        arrays = ArrayFunction(name, function, returns, passes)
        columns, function = arrays.of_columns, arrays.of_one

    def call(*arguments: Any) -> Any:
        try:
            # copies: others see the record, too
            return _carried(name, function(*map(copied, arguments)))
        except RecordError:
            raise
        except BaseException as ex:  # it is the user's: any exception concerns this record
            if passes(ex):
                raise
            raise RecordError(f"{name}() failed: {in_words(ex)}") from ex

    return OwnFunction(name, call, least, most, returns, columns)


def _carried(name: str, value: Any) -> Any:
    """The value that the function gives. Raises RecordError if no record can have it: a window that
    kept it would lose the other records of its bundle, too."""
    if type(value) in _AS_THEY_ARE or (type(value) is str and value.isascii()):
        return value
    try:
        data = encode_value(value)
        if nests_too_deeply(data):
            raise ValueError(f"it nests more than {MOST_NESTING} levels deep")
    except Exception as ex:  # a value of the user's own class may raise anything
        raise RecordError(
            f"{name}() gives a {type(value).__name__} that no record can have: {in_words(ex)}; it"
            " should give numbers, text, true, false, null, or lists and maps of them"
        ) from ex
    return value


def _arity(function: Callable[..., Any]) -> tuple[int, int]:
    """The fewest and the most arguments that it takes, as far as Python can see."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0, MOST_ARGUMENTS
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    least = sum(each.default is inspect.Parameter.empty for each in positional)
    repeated = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    return least, MOST_ARGUMENTS if repeated else len(positional)


def _unloaded(*arguments: Any) -> Any:
    raise InvariantError("code of the user's that was not loaded is called")
