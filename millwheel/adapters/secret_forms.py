"""The forms that texts give a secret, and the names that sound like one."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Shorter values are not looked for in texts: what is left of a text without every ``a`` tells
nothing."""
# of a value with several lines: its short ones are braces and words that other texts have, too
_SHORTEST_LINE = 8
_BITS_OF_BYTE, _BITS_OF_LETTER = 8, 6  # Fixed: of base64


def forms_of(value: str) -> set[str]:
    """All texts that tell the value: as it is, quoted, in base64 behind any other bytes, and each
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
        # what is encoded in front of it shifts its bits: user:password, for example
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
    """Whether a field of this name may hold a secret. Rather too often: what is hidden can be
    looked up elsewhere."""
    text = _CAPITAL.sub("_", name).lower()
    return any(pattern.search(text) for pattern in (_WITHIN, _WORD, _SESSION))


def holds_secret(name: str, value: object) -> bool:
    """Whether an option is a secret in plain text: its name ends like one, or its value has a
    password in it."""
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        return False
    named = _OPTION.search(_CAPITAL.sub("_", name).lower())
    return bool(named) or (isinstance(value, str) and bool(_PASSWORD_WITHIN.search(value)))
