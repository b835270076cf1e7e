"""The values of secrets: they stay in the process that uses them, and appear in none of its texts,
in any form; and the names that sound like a secret.

A secret is looked up where it is used: by the driver and the workers when they make a source, a
sink or a callback. Its value is the file of its name in the folder that ``MILLWHEEL_SECRETS`` names
(``--secrets``), else the environment variable of its name.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

from millwheel.adapters.rights import refuse_writable
from millwheel.errors import SetupError

SHORTEST = 4
"""Shorter values are not searched for in texts: a text without every ``a`` cannot be read."""
# of a value with several lines: its short ones are braces and words, as in other texts
_SHORTEST_LINE = 8
_BITS_OF_BYTE, _BITS_OF_LETTER = 8, 6  # Fixed: of base64


def forms_of(value: str) -> set[str]:
    """All texts that reveal the value: as it is, quoted, in base64 behind any other bytes, and each
    of its lines."""
    lines = [line.strip() for line in value.splitlines()]
    wholes = (
        {value, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
        if len(lines) > 1
        else {value}
    )
    return {form for whole in wholes for form in _forms(whole) if len(form) >= SHORTEST}


def _forms(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogateescape")
    yield from (value, repr(value)[1:-1], repr(data)[2:-1])
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (quote(data, safe=""), quote(data), quote_plus(data), data.hex())
    for encode in (b64encode, urlsafe_b64encode):
        # bytes encoded in front of it shift its bits: user:password, for example
        for before in range(3):
            first = -(-before * _BITS_OF_BYTE // _BITS_OF_LETTER)
            last = (before + len(data)) * _BITS_OF_BYTE // _BITS_OF_LETTER
            yield encode(bytes(before) + data).decode()[first:last]


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WITHIN = re.compile(
    r"pass[-_. ]?(?:word|wd|phrase|code)|pwd|secret|token|authori[sz]ation|credential|cookie"
    r"|(?:api|private|access|account|shared|signing|encryption)[-_. ]?key"
)
_WORD = re.compile(r"(?<![a-z])(?:pass|pin|otp|totp|jwt|cvv|cvc|ssn|sid|auth|bearer)(?![a-z])")
_SESSION = re.compile(r"(?<![a-z])session[-_. ]?(?:id|key)?$")
_OPTION = re.compile(
    r"(?:pass[-_. ]?(?:word|wd|phrase|code)|pwd|secret|token|authorization|credentials?|cookie"
    r"|(?:api|private|access|account|shared|secret|signing|encryption)[-_. ]?key"
    r"|(?<![a-z])(?:pin|otp|jwt))$"
)
_PASSWORD_WITHIN = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^@\s/]+@|\bpass(?:word|wd)\s*=\s*[^\s;]", re.IGNORECASE
)


def sounds_secret(name: str) -> bool:
    """Whether a field of this name may hold a secret. Better too often than not: a hidden value can
    be looked up elsewhere."""
    text = _CAPITAL.sub("_", name).lower()
    return any(pattern.search(text) for pattern in (_WITHIN, _WORD, _SESSION))


def holds_secret(name: str, value: object) -> bool:
    """Whether an option is a secret in plain text: its name ends like one, or its value has a
    password in it."""
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        return False
    named = _OPTION.search(_CAPITAL.sub("_", name).lower())
    return bool(named) or (isinstance(value, str) and bool(_PASSWORD_WITHIN.search(value)))


FOLDER_VARIABLE = "MILLWHEEL_SECRETS"
HIDDEN = "***"
_seen: set[str] = set()
"""Texts that must not leave this process: the values that it has seen, in all their forms."""
_waiting: list[Callable[[], None]] = []


def on_first_secret(act: Callable[[], None]) -> None:
    """Call ``act`` once, when this process sees its first value of a secret."""
    _waiting.append(act)


def revealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the values of their secrets. Raises SetupError for a secret that has none
    here."""
    return {
        name: _replaced(value, lambda secret: secret.filled(_value_of))
        for name, value in options.items()
    }


def unrevealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the text of the pipeline in place of each secret, to see whether they are
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
    for value in sorted(_seen, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def masked_bytes(data: bytes) -> bytes:
    """:func:`masked` for bytes that are mostly UTF-8."""
    return masked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


class MaskingStream:
    """Made by :func:`masking`. ``stream`` may be replaced."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text without secrets."""
        self.stream.write(masked(text) if _seen else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines without secrets."""
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
        _seen.update(forms_of(value))
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
