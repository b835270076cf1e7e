"""Messages of the embedded coordinator come back as they were sent, and nothing else is one."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats import coordinator_messages as m

NUMBERS, TEXTS, BYTES = st.integers(0, 2**63 - 1), st.text(max_size=5), st.binary(max_size=5)
TABLES = st.builds(m.StoredTable, TEXTS, BYTES, NUMBERS)
BY_FIELD: dict[str, Any] = {
    "number": NUMBERS,
    "timeout_us": NUMBERS,
    "version": st.integers(-1, 2**31),
    "role": TEXTS,
    "name": TEXTS,
    "token": TEXTS,
    "data": BYTES,
    "members": st.dictionaries(TEXTS, BYTES, max_size=3),
    "table": TABLES,
    "value": st.none() | st.integers(-(2**63), 2**63 - 1) | BYTES | st.lists(TABLES, max_size=2),
    "refused": st.none() | st.builds(m.Refusal, TEXTS),
}


def any_of(kinds: Any) -> Any:
    return st.one_of(
        [st.builds(kind, *(BY_FIELD[name] for name in kind.__struct_fields__)) for kind in kinds]
    )


@given(any_of(get_args(m.ToServer)))
def test_what_a_client_says_is_heard(message: Any) -> None:
    assert m.decode_to_server(m.encode(message)) == message


@given(any_of(get_args(m.ToClient)))
def test_what_the_server_says_is_heard(message: Any) -> None:
    assert m.decode_to_client(m.encode(message)) == message


@given(st.binary(max_size=30))
def test_other_bytes_are_the_documented_error(data: bytes) -> None:
    for decode in (m.decode_to_server, m.decode_to_client):
        with contextlib.suppress(msgspec.MsgspecError):
            decode(data)


def test_nobody_speaks_the_others_part() -> None:
    with pytest.raises(msgspec.ValidationError):
        m.decode_to_client(m.encode(m.Ping()))
    with pytest.raises(msgspec.ValidationError):
        m.decode_to_server(m.encode(m.Pong()))
