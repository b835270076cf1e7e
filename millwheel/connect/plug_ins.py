"""Third parties' sources, sinks and lookups: what installed packages register, and how their
objects come in.

An object that has the methods of a contract without being derived from its base class is wrapped
once, where it enters the system, so that the runtime never asks what an object can do.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from millwheel.connect.options import did_you_mean
from millwheel.errors import SetupError


def names_in(group: str) -> set[str]:
    """The kinds that installed packages add to a group of entry points."""
    return {point.name for point in entry_points(group=group)}


def made_by(group: str, what: str, kind: str, kinds: Callable[[], list[str]], *words: Any) -> Any:
    """What the factory of an installed package makes of ``words``. ``what`` is a "source", "sink"
    or "lookup".

    Raises ValueError for a ``kind`` that nobody has registered, naming a ``known`` one that is
    alike, and SetupError for a package that cannot be loaded."""
    for point in entry_points(group=group, name=kind):
        try:
            factory = point.load()
        except Exception as ex:  # a broken package may raise anything when it is imported
            reason = f"{type(ex).__name__}: {ex}"
            raise SetupError(
                f"the {what} {kind!r} ({point.value}) cannot be loaded: {reason}"
            ) from ex
        return factory(*words)
    raise ValueError(f"there is no {what} {kind!r}{did_you_mean(kind, kinds())}")


def require(instance: object, contract: type, *more: str) -> None:
    """Raises SetupError, naming class, members and fix, unless ``instance`` has what every object
    of the contract needs: its abstract methods, and ``more``."""
    needed: set[str] = set(contract.__abstractmethods__) | set(more)  # type: ignore[attr-defined]  # it is an ABC
    if missing := sorted(name for name in needed if not hasattr(instance, name)):
        kind = f"{type(instance).__module__}.{type(instance).__qualname__}"
        raise SetupError(
            f"{kind} has no {' and no '.join(missing)}, which each {contract.__name__} needs;"
            f" derive the class from millwheel.plugins.{contract.__name__}, whose docstrings say"
            " what is called and when"
        )


def take_over(wrapper: object, instance: object, *names: str) -> None:
    """Give a wrapper those of the optional members that ``instance`` has; the others keep the
    defaults of the contract."""
    for name in names:
        if hasattr(instance, name):
            setattr(wrapper, name, getattr(instance, name))
