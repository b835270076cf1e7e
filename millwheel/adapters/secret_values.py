"""The values of secrets, in the process that uses them, and in no text that leaves it.

A secret is looked for where it is used: by the driver and the workers when they make a source, a
sink or a callback. Its value is the file of its name in the folder that ``MILLWHEEL_SECRETS`` names
(``--secrets``), else the environment variable of its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from millwheel.adapters.rights import refuse_writable
from millwheel.adapters.secret_forms import SHORTEST, forms_of
from millwheel.errors import SetupError

FOLDER_VARIABLE = "MILLWHEEL_SECRETS"
HIDDEN = "***"
_known: set[str] = set()
"""What may not be told: the values that this process has seen, in the forms that texts give
them."""
_waiting: list[Callable[[], None]] = []


def when_known(act: Callable[[], None]) -> None:
    """Call ``act`` once, when this process sees the first value of a secret."""
    _waiting.append(act)


def revealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the values of their secrets. Raises SetupError for a secret that has none
    here."""
    return {
        name: _replaced(value, lambda secret: secret.filled(_value_of))
        for name, value in options.items()
    }


def unrevealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with text as the pipeline has it in place of each secret, to see whether they are
    options at all."""
    return {name: _replaced(value, lambda secret: secret.text) for name, value in options.items()}


def masking(stream: TextIO) -> TextIO:
    """A stream on which no secret appears that was written in one piece."""
    return cast(TextIO, MaskingStream(stream))


def unmasking(stream: TextIO) -> TextIO:
    """The stream itself: for records, which are shown as they are."""
    return stream.stream if isinstance(stream, MaskingStream) else stream


def masked(text: str) -> str:
    """A text in which the secrets that this process has seen are ``***``."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def masked_bytes(data: bytes) -> bytes:
    """Likewise, of bytes that are mostly UTF-8."""
    return masked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


class MaskingStream:
    """Made by :func:`masking`. ``stream`` may be replaced."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text without secrets."""
        self.stream.write(masked(text) if _known else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Likewise, line by line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _replaced(value: Any, replace: Callable[[Secret], str]) -> Any:
    if isinstance(value, Secret):
        return replace(value)
    if isinstance(value, Mapping):
        return {name: _replaced(inner, replace) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(inner, replace) for inner in value]
    return value


def _value_of(name: str) -> str:
    value = _from_folder(name)
    value = os.environ.get(name) if value is None else value
    if not value:
        raise SetupError(
            f"The secret {name!r} has no value here: write it into a file {name} in a folder that"
            " all machines have under the same path, and name that with --secrets; or set the"
            f" variable {name} in the environment of each"
        )
    if len(value) >= SHORTEST:
        _known.update(forms_of(value))
        while _waiting:
            _waiting.pop()()
    return value


def _from_folder(name: str) -> str | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    try:
        value = Path(folder, name).read_text(encoding="utf-8").rstrip("\r\n")
        for path in (Path(folder), Path(folder, name)):
            refuse_writable(path)
        return value
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"The secret {name!r} cannot be read from {folder}: {type(error).__name__}"
        ) from error


SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
"""A name that may be that of an environment variable and of a file, and leads out of no folder."""
_PART = re.compile(r"\$\$\{|\$\{secret:([^{}]*)\}")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """An option whose value is resolved only where it is used. ``text`` is as in YAML:
    ``postgres://u:${secret:PG}@db``, with ``$${`` for a plain ``${``."""

    text: str

    def __repr__(self) -> str:
        return "***"

    def filled(self, value_of: Callable[[str], str]) -> str:
        """The value itself; ``value_of`` gives a secret by its name."""
        return _PART.sub(
            lambda part: "${" if part.group(1) is None else value_of(part.group(1)), self.text
        )
