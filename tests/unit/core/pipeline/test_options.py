from __future__ import annotations

import pytest

from millwheel.core.pipeline.options import SECRET_NAME, Secret


def test_a_secret_is_filled_where_it_stands_and_shows_nothing_of_itself() -> None:
    secret = Secret("postgres://u:${secret:PG}@${secret:HOST}/x")
    assert secret.filled({"PG": "s3cret", "HOST": "db"}.__getitem__) == "postgres://u:s3cret@db/x"
    assert "secret:PG" not in f"{secret!r}{[secret]}"


def test_dollars_that_are_no_secret_stay_and_a_value_is_not_looked_into() -> None:
    assert (
        Secret("$${x} $x ${secret:A}").filled(lambda name: "${secret:B}") == "${x} $x ${secret:B}"
    )


@pytest.mark.parametrize("name", ["../etc/passwd", "/x", "", ".x", "a b", "a/b", "x" * 129])
def test_a_name_leads_out_of_no_folder(name: str) -> None:
    assert not SECRET_NAME.fullmatch(name)
