"""A bucket for data. tests/contract/test_object_store.py asks the same of real servers."""

from __future__ import annotations

import sys

import pytest

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.adapters.objects.client import CallLimits
from millwheel.adapters.objects.store import ObjectStore
from millwheel.errors import SetupError, UnavailableError

BUCKET = ObjectAddress("s3", "bucket", "")


def test_without_its_package_a_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[s3\]'"):
        ObjectStore(BUCKET, {}).get("x")


def test_a_wrong_configuration_is_named_without_its_values() -> None:
    with pytest.raises(SetupError, match=r"'config' \(secret_acces_key\)") as raised:
        ObjectStore(BUCKET, {"secret_acces_key": "hush-hush"}).get("x")
    assert "hush" not in str(raised.value)


def test_a_store_that_does_not_answer_may_answer_later() -> None:
    config = {
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "x",
    }
    with pytest.raises(UnavailableError, match="cannot read s3://bucket/x"):
        ObjectStore(BUCKET, config, CallLimits(retries=0)).get("x")
