"""The Helm chart: the templates by real Helm, where there is one, and everywhere what they
rendered."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7
from ruamel.yaml import YAML

from millwheel.adapters.metrics.endpoint import HEALTHZ, READYZ
from millwheel.language.spec import load_pipeline
from millwheel.tools.cli.app import app
from millwheel.tools.gateway.app import PROBES
from tests import rooms
from tests.servers import helm
from tests.servers.wheels import unpacked

MANIFESTS = {
    case: list(YAML(typ="safe").load_all(helm.RENDERED / f"{case}.yaml")) for case in helm.CASES
}
SCHEMAS = f"v{helm.KUBERNETES}-local-strict"
IMAGE = (rooms.HOUSE / "deploy" / "Dockerfile").read_text()

each_case = pytest.mark.parametrize("case", helm.CASES)
each_manifest = pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(each, id=f"{case}-{each['kind']}")
        for case, found in MANIFESTS.items()
        for each in found
    ],
)


def one(case: str, kind: str, name: str = "hello-millwheel") -> Any:
    """The manifest of this kind and name."""
    [found] = [
        each
        for each in MANIFESTS[case]
        if each["kind"] == kind and (kind != "Service" or each["metadata"]["name"] == name)
    ]
    return found


def pod(case: str) -> Any:
    return one(case, "StatefulSet")["spec"]["template"]["spec"]


def container(case: str, name: str = "pipeline") -> Any:
    [found] = [each for each in pod(case)["containers"] if each["name"] == name]
    return found


@each_case
def test_helm_finds_nothing_wrong_and_renders_what_the_other_tests_look_at(case: str) -> None:
    program = helm.program()
    lint = [program, "lint", "--strict", str(helm.CHART), *helm.CASES[case]]
    done = subprocess.run(lint, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    again = "render the chart again: `python -m tests.servers.helm`"
    assert helm.rendered(program, case) == (helm.RENDERED / f"{case}.yaml").read_text(), again


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--set", "workers=0"], "workers"),
        (["--set", "worker=3"], "worker"),
        (["--set", "root=/elsewhere"], "root"),
        (["--set", "queries.service.type=Ingress"], "queries"),
        (["--set", "pipeline.files.pipeline\\.yaml=null"], "pipeline.path"),
    ],
)
def test_helm_refuses_values_that_cannot_be(words: list[str], reason: str) -> None:
    template = [
        helm.program(),
        "template",
        "hello",
        str(helm.CHART),
        "--kube-version",
        helm.KUBERNETES,
    ]
    done = subprocess.run([*template, *words], capture_output=True, text=True)
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.fixture(scope="module")
def schemas() -> Path:
    folder = unpacked("kubernetes-validate", only=f"/{SCHEMAS}/")
    return folder / "kubernetes_validate" / "kubernetes-json-schema" / SCHEMAS


@each_manifest
def test_a_manifest_is_what_the_schemas_of_kubernetes_say(manifest: Any, schemas: Path) -> None:
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = "-".join(filter(None, (manifest["kind"].lower(), group.partition(".")[0], version)))
    schema = json.loads((schemas / f"{name}.json").read_text())
    assert schema["additionalProperties"] is False, "the schemas are the strict ones"
    registry: Registry[Any] = Registry(
        retrieve=lambda uri: contents(schemas / uri.rpartition("/")[2])
    )
    jsonschema.Draft7Validator(schema, registry=registry).validate(manifest)


def test_the_schemas_refuse_what_kubernetes_would(schemas: Path) -> None:
    wrong = json.loads(json.dumps(one("default", "StatefulSet")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readynessProbe"):
        test_a_manifest_is_what_the_schemas_of_kubernetes_say(wrong, schemas)


def contents(path: Path) -> Resource[Any]:
    """A file that a schema refers to."""
    return Resource.from_contents(json.loads(path.read_text()), DRAFT7)


@each_case
def test_every_container_is_confined_and_runs_as_the_user_of_the_image(case: str) -> None:
    spec = pod(case)
    user = spec["securityContext"]["runAsUser"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert f"useradd --uid {user} " in IMAGE
    assert not spec["automountServiceAccountToken"]
    for each in spec["containers"] + spec["initContainers"]:
        context = each["securityContext"]
        assert not context["allowPrivilegeEscalation"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        volumes = {volume["name"] for volume in spec["volumes"]} | {"data"}
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes


@each_case
def test_probes_ask_what_the_driver_answers(case: str) -> None:
    pipeline = container(case)
    ports = {port["name"]: port["containerPort"] for port in pipeline["ports"]}
    assert f"--metrics-port={ports['metrics']}" in pipeline["args"]
    for kind, path in (
        ("startupProbe", READYZ),
        ("readinessProbe", READYZ),
        ("livenessProbe", HEALTHZ),
    ):
        assert pipeline[kind]["httpGet"] == {"path": path, "port": "metrics", "scheme": "HTTPS"}


def test_a_gateway_answers_behind_its_service_while_it_is_ready() -> None:
    gateway, service = (
        container("full", "gateway"),
        one("full", "Service", "hello-millwheel-queries"),
    )
    [port] = gateway["ports"]
    assert f"--port={port['containerPort']}" in gateway["args"]
    assert [each["targetPort"] for each in service["spec"]["ports"]] == [port["name"]]
    assert "publishNotReadyAddresses" not in service["spec"]
    assert one("full", "StatefulSet")["spec"]["template"]["metadata"]["labels"].items() >= (
        service["spec"]["selector"].items()
    )
    for kind, path in (
        ("startupProbe", HEALTHZ),
        ("readinessProbe", READYZ),
        ("livenessProbe", HEALTHZ),
    ):
        assert gateway[kind]["httpGet"] == {"path": path, "port": "queries", "scheme": "HTTPS"}
        assert path in PROBES
    root = [
        word.partition("=")[2] for word in container("full")["args"] if word.startswith("--root=")
    ]
    assert gateway["args"][:2] == ["serve", *root]
    assert gateway["workingDir"] == container("full")["workingDir"], (
        "a root in a bucket has its folder there"
    )
    assert "--query-port=6400" in container("full")["args"]


def test_without_queries_nothing_of_them_is_there() -> None:
    assert [each["name"] for each in pod("default")["containers"]] == ["pipeline"]
    assert not [word for word in container("default")["args"] if "query" in word]
    [rule] = one("default", "NetworkPolicy")["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == ["metrics"]


@each_case
def test_the_container_calls_the_command_with_options_that_it_has(case: str) -> None:
    for each in pod(case)["containers"]:
        command = typer.main.get_command(app).commands[each["args"][0]]  # type: ignore[attr-defined]
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        options = {word.partition("=")[0] for word in each["args"][2:]}
        assert options <= known
    assert 'ENTRYPOINT ["tini", "--", "millwheel"]' in IMAGE


@each_case
def test_the_budget_the_service_and_the_set_are_about_the_same_pod(case: str) -> None:
    labels = one(case, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one(case, "StatefulSet")["spec"]["selector"]["matchLabels"],
        one(case, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(case, "Service")["spec"]["selector"],
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()
    assert one(case, "StatefulSet")["spec"]["replicas"] == 1, "two drivers must never share a root"
    assert (
        one(case, "Service")["metadata"]["name"] == one(case, "StatefulSet")["spec"]["serviceName"]
    )
    budget = {"default": 1, "full": 0}[case]
    assert one(case, "PodDisruptionBudget")["spec"]["maxUnavailable"] == budget


def test_the_pipeline_of_the_values_is_right(tmp_path: Path) -> None:
    for name, text in one("default", "ConfigMap")["data"].items():
        (tmp_path / name).write_text(text)
    assert container("default")["args"][1] == "/pipeline/pipeline.yaml"
    assert [each.name for each in load_pipeline(tmp_path / "pipeline.yaml", {}).computations] == [
        "counts"
    ]


def test_every_value_says_what_it_is_for() -> None:
    page = (rooms.HOUSE / "deploy" / "README.md").read_text()
    values = YAML(typ="safe").load(helm.CHART / "values.yaml")
    schema = json.loads((helm.CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) == set(values) | {"global"}
    table = page.partition("| value | ")[2].partition("\n\n")[0]
    for name, value in values.items():
        plain = isinstance(value, dict) and value and name not in ("resources",)
        for key in [f"{name}.{inner}" for inner in value] if plain else [name]:
            assert f"`{key}`" in table, key
