"""The manifests of deploy/kubernetes: kustomize builds them, and they match the schemas and the product."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.house.repository import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML comes with kubernetes-validate; `make venv` installs both")
validate = pytest.importorskip("kubernetes_validate")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("kubectl") is None, reason="kubectl, which builds a kustomization, is not installed"
    ),
]

OLDEST, NEWEST = "1.27", "1.32"
SERVICES = ("state", "scheduler", "gateway", "proxy", "worker")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Everything, built with made-up secrets."""
    place = tmp_path_factory.mktemp("kubernetes") / "it"
    shutil.copytree(ROOT / "deploy" / "kubernetes", place, ignore=shutil.ignore_patterns("secrets"))
    (place / "secrets").mkdir()
    for name in (*(f"{service}.nk" for service in SERVICES), "tokens", "users.conf"):
        (place / "secrets" / name).write_text("secret")
    done = subprocess.run(["kubectl", "kustomize", place], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of(manifests: list[dict[str, Any]], *kinds: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] in kinds}


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The name, pod and labels of every workload."""
    for name, one in of(manifests, "Deployment", "StatefulSet").items():
        yield name, one["spec"]["template"]["spec"], one["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_they_fit_the_published_schemas(manifests: list[dict[str, Any]], version: str):
    for one in manifests:
        if one["kind"] != "ServiceMonitor":
            validate.validate(one, version, strict=True)


def test_every_service_of_iris_is_there(manifests: list[dict[str, Any]]):
    commands = {tuple(pod["containers"][0]["command"]) for _, pod, _ in pods(manifests)}
    assert commands == {
        *(("iris", "server", service) for service in SERVICES),
        ("nats-server", "--config", "/etc/nats/nats.conf"),
    }


def test_every_probe_asks_a_port_and_a_page_that_are_there(manifests: list[dict[str, Any]]):
    pages = {"/healthz", "/readyz"}
    for name, pod, _ in pods(manifests):
        [container] = pod["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] in ports, name
            assert asked["path"].partition("?")[0] in pages, name


def test_ports_are_those_that_the_settings_name(manifests: list[dict[str, Any]]):
    settings = next(
        data["data"] for name, data in of(manifests, "ConfigMap").items() if name.startswith("iris-settings")
    )
    for name, pod, _ in pods(manifests):
        [container] = pod["containers"]
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        given = {one["name"]: one.get("value", "") for one in container.get("env", [])}
        if name == "iris-nats":
            assert settings["IRIS_NATS_URL"].endswith(f":{ports['nats']}")
        elif name == "iris-gateway":
            assert given["IRIS_GATEWAY_HTTP"].endswith(f":{ports['http']}")
        else:
            assert settings["IRIS_RUN_METRICS"].endswith(f":{ports['metrics']}")


def test_selectors_find_pods_and_services_name_ports_of_them(manifests: list[dict[str, Any]]):
    found = {name: (pod, labels) for name, pod, labels in pods(manifests)}

    def chosen(selector: dict[str, str]) -> list[dict[str, Any]]:
        return [pod for pod, labels in found.values() if selector.items() <= labels.items()]

    for service in of(manifests, "Service").values():
        [pod] = chosen(service["spec"]["selector"])
        ports = {port["containerPort"] for port in pod["containers"][0]["ports"]}
        assert {port["port"] for port in service["spec"]["ports"]} <= ports
    for budget in of(manifests, "PodDisruptionBudget").values():
        assert len(chosen(budget["spec"]["selector"]["matchLabels"])) == 1
    for policy in of(manifests, "NetworkPolicy").values():
        selector = policy["spec"]["podSelector"].get("matchLabels", {})
        assert chosen(selector), policy["metadata"]["name"]


def test_no_pod_runs_as_root_or_writes_outside_its_volumes(manifests: list[dict[str, Any]]):
    for name, pod, _ in pods(manifests):
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {
            claim["metadata"]["name"]
            for claim in of(manifests, "StatefulSet").get(name, {}).get("spec", {}).get("volumeClaimTemplates", [])
        }
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claims, name


def test_monitors_select_services_with_the_port_they_scrape(manifests: list[dict[str, Any]]):
    services = of(manifests, "Service").values()
    scraped = set()
    for monitor in of(manifests, "ServiceMonitor").values():
        wanted = monitor["spec"]["selector"]["matchLabels"]
        port = monitor["spec"]["endpoints"][0]["port"]
        scraped |= {
            service["metadata"]["name"]
            for service in services
            if wanted.items() <= service["metadata"]["labels"].items()
            and port in {one["name"] for one in service["spec"]["ports"]}
        }
    assert scraped == {f"iris-{service}" for service in SERVICES}
