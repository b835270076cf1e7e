"""Real Helm: the machine's own, or one that ``python -m tests.servers.helm`` has built into a cache
of this user.

Nobody publishes Helm as a package of a registry, and a build from the Go module proxy takes three
minutes of CPU. So no test builds it: where there is none, tests of the templates are skipped, and
those of what they rendered are not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from platformdirs import user_cache_path

from tests import rooms
from tests.servers.programs import lacking

VERSION = "3.18.6"
_MODULE = f"helm.sh/helm/v3/cmd/helm@v{VERSION}"
CHART = rooms.HOUSE / "deploy" / "helm"
RENDERED = rooms.HOUSE / "tests" / "unit" / "deploy" / "rendered"
KUBERNETES = "1.33.0"
"""The version that the chart is rendered for, and whose schemas the result is compared with."""
CASES = {"default": (), "full": ("-f", str(CHART / "ci" / "full-values.yaml"))}


def program() -> str:
    """The path of ``helm``; skips the test where there is none, or fails it where
    MILLWHEEL_REQUIRES names it."""
    found = shutil.which("helm") or str(_folder() / "helm")
    if Path(found).exists():
        return found
    return lacking("helm", "there is no helm here: `python -m tests.servers.helm` builds one")


def rendered(helm: str, case: str) -> str:
    """What the chart becomes with the values of a case."""
    words = [
        "template",
        "hello",
        str(CHART),
        "--namespace",
        "streams",
        "--kube-version",
        KUBERNETES,
    ]
    return subprocess.run(
        [helm, *words, *CASES[case]], capture_output=True, text=True, check=True
    ).stdout


def build() -> None:
    """Build Helm into the cache, once."""
    folder = _folder()
    if (folder / "helm").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    # A cache of its own, removed afterwards: sources and objects take 2 GB.
    scratch = {name: str(folder / "build" / name) for name in ("GOPATH", "GOCACHE")}
    environment = {
        **os.environ,
        **scratch,
        "GOBIN": str(folder),
        "GOFLAGS": "-modcacherw -buildvcs=false",
    }
    try:
        subprocess.run(["go", "install", _MODULE], check=True, env=environment)
    finally:
        shutil.rmtree(folder / "build", ignore_errors=True)


def _folder() -> Path:
    return user_cache_path("millwheel-tests") / f"helm-{VERSION}"


if __name__ == "__main__":
    build()
    for name in CASES:
        (RENDERED / f"{name}.yaml").write_text(rendered(program(), name), encoding="utf-8")
