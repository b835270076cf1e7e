"""Checks a callback's class: the runtime can construct and call it, and can store its state.

Here a mistake is one sentence before anything starts. In a running pipeline every record would
fail.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import msgspec

from millwheel.adapters.secret_values import Secret
from millwheel.api import Computation, State, ValueState, takes_batches
from millwheel.connect.python_objects import missing_file_hint
from millwheel.core.windows.panes import RETRACTION_FIELD, Retraction

METHODS = {
    "process_record": ("ctx", "record"),
    "process_batch": ("ctx", "records"),
    "process_window": ("ctx", "key", "window", "records"),
    "process_timer": ("ctx", "timer"),
}
"""The methods that the runtime calls, with their arguments."""
_NEVER_STORED = (int, float, str, bytes, bool, type(None))


def wrong_methods(kind: type[Computation], windowed: bool) -> Iterator[str]:
    """One sentence for each method that cannot be called as the runtime does."""
    for name, parameters in METHODS.items():
        if _is_called(name, kind, windowed) and getattr(kind, name) is not getattr(
            Computation, name
        ):
            if why := _why_not(kind, name, parameters):
                yield f"{_line_of(getattr(kind, name))}{kind.__name__}.{name} {why}"


def _is_called(name: str, kind: type[Computation], windowed: bool) -> bool:
    """Whether the runtime calls this method of a class at all."""
    if name == "process_record":
        return not windowed and not takes_batches(kind)
    return name == "process_timer" or windowed == (name == "process_window")


def wrong_states(kind: type[Computation]) -> Iterator[str]:
    """One sentence for each declared state that cannot be stored."""
    for name, state in _declared(kind).items():
        if why := _cannot_be_stored(state):
            yield f"{_line_of(kind)}{kind.__name__}.{name} {why}"


def makes_retractions(kind: type[Computation]) -> str:
    """A sentence if a class that takes no retractions has code that makes some; "" if it has none.
    Each would be refused when it is produced."""
    own = [
        base for base in kind.__mro__ if issubclass(base, Computation) and base is not Computation
    ]
    for method in [
        each for base in own for each in vars(base).values() if isinstance(each, FunctionType)
    ]:
        if not kind.takes_retractions and _names_retractions(method.__code__):
            return (
                f"{_line_of(method)}{kind.__name__}.{method.__name__} makes retractions, and a"
                " callback cannot take back what it produced: produce the new row and let a sink"
                " with mode: upsert replace the old one, or make the change log with a window of"
                " accumulation: retracting"
            )
    return ""


def _names_retractions(code: CodeType) -> bool:
    if Retraction.__name__ in code.co_names:
        return True
    return any(
        each == RETRACTION_FIELD
        or (isinstance(each, tuple) and RETRACTION_FIELD in each)
        or (isinstance(each, CodeType) and _names_retractions(each))
        for each in code.co_consts
    )


def cannot_be_made(kind: type[Computation], options: Mapping[str, Any]) -> str:
    """Why the class cannot be built; "" if it can. Options with a secret are not tried, because
    only the process that uses the class has the secret."""
    if _has_secret(options):
        return ""
    try:
        instance = kind(**options)
    except KeyboardInterrupt:
        raise
    except BaseException as ex:  # any error of the user's constructor, SystemExit included
        frames = traceback.extract_tb(ex.__traceback__)[1:]
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        text = f"{type(ex).__name__}: {ex}{missing_file_hint(ex)}{where}"
        return f"{_line_of(kind)}{kind.__name__} cannot be built with these options: {text}"
    if not isinstance(instance, Computation):
        return (
            f"{_line_of(kind)}{kind.__name__} constructs a {type(instance).__name__}, not a"
            " millwheel.Computation"
        )
    return ""


def _why_not(kind: type, name: str, parameters: tuple[str, ...]) -> str:
    own = inspect.getattr_static(kind, name)
    function = own.__func__ if isinstance(own, (staticmethod, classmethod)) else own
    definition = f"{name}(self, {', '.join(parameters)})"
    if not callable(function):
        return f"is a {type(function).__name__}, not a method; write def {definition}"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"is async and would never run; write def {definition}, without async"
    if inspect.isgeneratorfunction(function):
        return "has a yield and would never run; call ctx.produce(stream, value) in its place"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Python cannot describe the signature
        return ""
    arguments = parameters if isinstance(own, staticmethod) else ("self", *parameters)
    try:
        signature.bind(*arguments)
    except TypeError as ex:
        return f"cannot be called with {', '.join(parameters)} ({ex}); write def {definition}"
    return ""


def _cannot_be_stored(state: State) -> str:
    try:
        decoder = msgspec.msgpack.Decoder(state.type)
    except Exception as ex:  # msgspec raises several kinds for types that it cannot decode into
        return (
            f"cannot be stored: {ex}; declare a type that msgspec supports, such as a"
            " msgspec.Struct"
        )
    if not isinstance(state, ValueState):
        return ""
    try:
        default = state.default() if callable(state.default) else state.default
    except Exception as ex:  # the user's factory
        return (
            f"has a default that cannot be built: {type(ex).__name__}: {ex}; give a value or a"
            " function"
        )
    if type(default) in _NEVER_STORED:
        return ""
    try:
        decoder.decode(msgspec.msgpack.encode(default))
    # TypeError, ValueError, ValidationError, or an error of a type's own hooks
    except Exception as ex:
        return (
            f"has a default that cannot be stored and read back as {state.type}: {ex}; give a"
            " default that fits the declared type, such as the type itself"
        )
    return ""


def _declared(kind: type) -> dict[str, State]:
    states: dict[str, State] = {}
    for base in reversed(kind.__mro__):
        states.update(
            {name: value for name, value in vars(base).items() if isinstance(value, State)}
        )
    return states


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_secret, value.values()))
    return isinstance(value, Secret) or (
        isinstance(value, (list, tuple)) and any(map(_has_secret, value))
    )


def _line_of(thing: Any) -> str:
    """``detectors.py:12: `` for a class or method; "" if Python cannot find its line."""
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return ""
    return f"{Path(file).name}:{line}: " if file else ""
