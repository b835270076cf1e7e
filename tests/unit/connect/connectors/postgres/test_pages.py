from __future__ import annotations

import msgspec
import pytest

from millwheel.connect.connectors.postgres.pages import Pages
from millwheel.connect.connectors.postgres.source_options import PostgresSourceOptions
from millwheel.errors import SetupError, UnavailableError

NOWHERE = {"dsn": "postgresql://u:hush-hush@127.0.0.1:1/results", "order_by": "id", "table": "t"}


def test_a_server_that_does_not_answer_is_a_sentence_at_first_and_waited_for_later() -> None:
    pages = Pages(msgspec.convert(NOWHERE, PostgresSourceOptions))
    with pytest.raises(SetupError, match="cannot be used") as caught:
        pages.span()
    with pytest.raises(UnavailableError) as later:
        pages.page(0, 9)
    assert "hush" not in f"{caught.value} {later.value}"
