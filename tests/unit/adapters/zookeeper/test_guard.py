from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.zookeeper.guard import OPEN, ZooKeeperGuard, load_guard
from millwheel.errors import SetupError


def private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def test_without_a_folder_everything_is_open() -> None:
    assert load_guard("") == OPEN
    assert OPEN.client_options() == {}


def test_a_user_owns_alone_what_it_creates(tmp_path: Path) -> None:
    private(tmp_path / "zookeeper.auth", "mill:secret:with:colons\n")
    options = load_guard(str(tmp_path)).client_options()
    assert options["auth_data"] == [("digest", "mill:secret:with:colons")]
    (acl,) = options["default_acl"]
    assert acl.id.scheme == "digest"
    assert "secret" not in repr(acl)
    assert "use_ssl" not in options


def test_a_ca_switches_tls_on_and_certificates_are_shown(tmp_path: Path) -> None:
    for name in ("zookeeper-ca.pem", "zookeeper.pem", "zookeeper.key"):
        private(tmp_path / name, "-----BEGIN")
    options = load_guard(str(tmp_path)).client_options()
    assert options["use_ssl"] is True
    assert options["verify_certs"] is True
    assert options["ca"].endswith("zookeeper-ca.pem")
    assert options["certfile"].endswith("zookeeper.pem")
    assert options["keyfile"].endswith("zookeeper.key")


@pytest.mark.parametrize("name", ["zookeeper.auth", "zookeeper.key"])
def test_private_files_that_others_can_read_are_refused(tmp_path: Path, name: str) -> None:
    private(tmp_path / "zookeeper-ca.pem", "-----BEGIN")
    private(tmp_path / "zookeeper.pem", "-----BEGIN")
    private(tmp_path / "zookeeper.key", "-----BEGIN")
    private(tmp_path / name, "a:b")
    (tmp_path / name).chmod(0o640)
    with pytest.raises(SetupError, match="chmod 600"):
        load_guard(str(tmp_path))


@pytest.mark.parametrize("text", ["", "user", "user:", ":password"])
def test_a_user_without_password_is_refused(tmp_path: Path, text: str) -> None:
    private(tmp_path / "zookeeper.auth", text)
    with pytest.raises(SetupError, match="user:password"):
        load_guard(str(tmp_path))


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    private(tmp_path / "zookeeper-ca.pem", "-----BEGIN")
    private(tmp_path / "zookeeper.pem", "-----BEGIN")
    with pytest.raises(SetupError, match="go together"):
        load_guard(str(tmp_path))


def test_the_password_does_not_show() -> None:
    assert "hidden" not in repr(ZooKeeperGuard("user", "hidden"))
