"""Third parties' objects that have the methods of a contract without being derived from its base class.

Such an object is wrapped once, where it enters the system, so that the runtime never asks what an object can do.
"""

from __future__ import annotations

from millwheel.errors import SetupError


def require(made: object, contract: type, *more: str) -> None:
    """Raises SetupError, naming class, members and fix, unless ``made`` has what every object of the contract needs:
    its abstract methods, and ``more``."""
    needed: set[str] = set(contract.__abstractmethods__) | set(more)  # type: ignore[attr-defined]  # it is an ABC
    if missing := sorted(name for name in needed if not hasattr(made, name)):
        kind = f"{type(made).__module__}.{type(made).__qualname__}"
        raise SetupError(
            f"{kind} has no {' and no '.join(missing)}, which each {contract.__name__} needs; derive the class from "
            f"{contract.__module__}.{contract.__name__}, whose docstrings say what is called and when"
        )


def take_over(wrapper: object, made: object, *names: str) -> None:
    """Give a wrapper those of the optional members that ``made`` has; the others keep the defaults of the contract."""
    for name in names:
        if hasattr(made, name):
            setattr(wrapper, name, getattr(made, name))
