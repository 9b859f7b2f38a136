"""The manifests of deploy/kubernetes: kustomize builds them, and they match the schemas and the
product.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.cluster.settings import KEPT_SERVICES
from iris_nats import nats_binary
from tests.house.repository import ROOT

yaml = pytest.importorskip(
    "yaml", reason="PyYAML comes with kubernetes-validate; `make venv` installs both"
)
validate = pytest.importorskip(
    "kubernetes_validate", reason="`make venv` installs kubernetes-validate"
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("kubectl"),
]

OLDEST, NEWEST = "1.27", "1.32"
SERVICES = (*KEPT_SERVICES, "worker")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory, with the secrets that its README says how to make."""
    made = tmp_path_factory.mktemp("kubernetes") / "it"
    shutil.copytree(ROOT / "deploy" / "kubernetes", made, ignore=shutil.ignore_patterns("secrets"))
    block = re.search(
        r"^```\n(.*?)kubectl apply -k \.\n```$",
        (made / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert block
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(
        ["sh", "-euc", block[1]], cwd=made, env=environ, check=True, timeout=60, capture_output=True
    )
    return made


@pytest.fixture(scope="module")
def manifests(place: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["kubectl", "kustomize", place], capture_output=True, text=True, check=False, timeout=60
    )
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
        ("nats-server", "--config", "/etc/nats/nats-$(POD_NAME).conf", "--http_port", "8222"),
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


def files_of(
    manifests: list[dict[str, Any]], pod: dict[str, Any], env: dict[str, str]
) -> dict[str, bytes]:
    """What the secrets that the container of a pod mounts are in it, by path."""
    secrets = of(manifests, "Secret")
    volumes = {
        volume["name"]: volume["secret"]
        for volume in pod["volumes"]
        if "secret" in volume and not volume["secret"].get("optional")
    }
    found = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        if volume := volumes.get(mount["name"]):
            data = {
                key: base64.b64decode(text)
                for key, text in secrets[volume["secretName"]]["data"].items()
            }
            shown = {item["path"]: data[item["key"]] for item in volume.get("items", [])} or data
            one = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], mount.get("subPathExpr", ""))
            parts = (
                {"": shown[one]}
                if one
                else {f"/{name}": content for name, content in shown.items()}
            )
            found |= {mount["mountPath"] + name: content for name, content in parts.items()}
    return found


def test_each_pod_gets_the_key_that_was_made_for_it_and_no_other(
    place: Path, manifests: list[dict[str, Any]]
):
    made = {path.stem: path.read_bytes() for path in (place / "secrets" / "keys").iterdir()}
    workers = 0
    for name, pod, _ in pods(manifests):
        given = {one["name"]: one.get("value", "") for one in pod["containers"][0].get("env", [])}
        for number in range(of(manifests, "StatefulSet")["iris-worker"]["spec"]["replicas"]):
            files = files_of(manifests, pod, {"IRIS_WORKER_ID": f"iris-worker-{number}"})
            seen = {label for label, seed in made.items() if seed in files.values()}
            if name == "iris-nats":
                assert seen == set()
            elif name == "iris-worker":
                assert seen == {f"worker-iris-worker-{number}"}
                workers += 1
            else:
                assert seen == {name.removeprefix("iris-")}
            if seen:
                assert made[seen.pop()] == files[given["IRIS_NATS_NKEY_SEED"]], name
    assert workers == 2


def test_each_server_has_a_configuration_with_its_name_and_its_peers(
    manifests: list[dict[str, Any]], tmp_path: Path
):
    [pod] = [pod for name, pod, _ in pods(manifests) if name == "iris-nats"]
    for path, text in files_of(manifests, pod, {}).items():
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/")).write_bytes(text)
    [_, _, config, *_] = pod["containers"][0]["command"]
    peers = of(manifests, "Service")["iris-nats-peers"]["metadata"]["name"]
    for number in range(of(manifests, "StatefulSet")["iris-nats"]["spec"]["replicas"]):
        mine = tmp_path / config.replace("$(POD_NAME)", f"iris-nats-{number}").lstrip("/")
        assert f'server_name: "iris-nats-{number}"' in mine.read_text()
        assert re.findall(r"@([\w.-]+):6222", mine.read_text()) == [
            f"iris-nats-{n}.{peers}" for n in range(3)
        ]
        tried = subprocess.run(
            [nats_binary.find(), "-t", "-c", mine], capture_output=True, text=True, check=False
        )
        assert tried.returncode == 0, tried.stderr


def test_a_proxy_keeps_its_discovery_where_it_may_write(manifests: list[dict[str, Any]]):
    [pod] = [pod for name, pod, _ in pods(manifests) if name == "iris-proxy"]
    [container] = pod["containers"]
    [kept] = [
        one["value"] for one in container["env"] if one["name"] == "IRIS_PROXY_DISCOVERY_FILE"
    ]
    [volume] = [
        mount["name"]
        for mount in container["volumeMounts"]
        if mount["mountPath"] == os.path.dirname(kept)
    ]
    assert {"name": volume, "emptyDir": {}} in pod["volumes"]


def test_ports_are_those_that_the_settings_name(manifests: list[dict[str, Any]]):
    settings = next(
        data["data"]
        for name, data in of(manifests, "ConfigMap").items()
        if name.startswith("iris-settings")
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


RECOVERY = ROOT / "docs" / "disaster-recovery.md"
_KINDS = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "pod": "Pod",
    "pvc": "Claim",
    "service": "Service",
}


def kubectl_lines() -> list[list[str]]:
    """Each command of kubectl in the page on disaster recovery, in its words after the program."""
    text = RECOVERY.read_text()
    lines = re.findall(r"^kubectl (.*)$", text, re.MULTILINE) + re.findall(
        r"`kubectl ([^`]*)`", " ".join(text.split())
    )
    return [shlex.split(line) for line in lines]


def existing(manifests: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The names of what the page may speak of, by kind: also what stateful sets make."""
    found = {kind: set(of(manifests, kind)) for kind in ("Deployment", "StatefulSet", "Service")}
    found |= {"Pod": set(), "Claim": set()}
    for name, one in of(manifests, "StatefulSet").items():
        for number in range(one["spec"]["replicas"]):
            found["Pod"].add(f"{name}-{number}")
            claims = one["spec"].get("volumeClaimTemplates", [])
            found["Claim"] |= {f"{claim['metadata']['name']}-{name}-{number}" for claim in claims}
    return found


def named(words: list[str]) -> Iterator[tuple[str, str]]:
    """The kind and name of each object that a command of kubectl names."""
    plain = [word for word in words if not word.startswith("-")]
    for at, word in enumerate(plain):
        kind, slash, name = word.partition("/")
        if slash and kind in _KINDS:
            yield _KINDS[kind], name
        elif word in _KINDS:
            yield from (
                (_KINDS[word], name)
                for name in plain[at + 1 :]
                if name.startswith(("iris-", "data-"))
            )


def test_what_the_page_on_recovery_names_is_in_the_manifests(manifests: list[dict[str, Any]]):
    lines, there = kubectl_lines(), existing(manifests)
    seen = {what for words in lines for what in named(words)}
    assert [what for what in seen if what[1] not in there[what[0]]] == []
    claims = {name for kind, name in seen if kind == "Claim"}
    assert claims == {name for name in there["Claim"] if "iris-nats" in name}, (
        "a claim would keep what is to be empty"
    )
    [namespace] = of(manifests, "Namespace")
    assert {words[words.index("-n") + 1] for words in lines if "-n" in words} == {namespace}
    apps = {labels["app"] for _, _, labels in pods(manifests)}
    selected = re.findall(r"app in \((.*?)\)", RECOVERY.read_text())
    assert selected
    assert {name.strip() for one in selected for name in one.split(",")} <= apps
    ports = {str(port["port"]) for port in of(manifests, "Service")["iris-nats"]["spec"]["ports"]}
    [forward] = [words for words in lines if "port-forward" in words]
    assert forward[-1].partition(":")[2] in ports


def test_kubectl_knows_the_commands_and_options_of_the_page_on_recovery():
    """Of each, kubectl reads the words before it finds that there is no cluster."""
    environ = {**os.environ, "KUBECONFIG": "/dev/null"}
    for words in kubectl_lines():
        if words[0] == "apply":
            continue  # reads the directory first
        asked = ["kubectl", "--server", "http://127.0.0.1:1", "--request-timeout", "1s", *words]
        done = subprocess.run(
            asked, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode != 0, words
        assert re.search(r"127\.0\.0\.1:1|refused", done.stderr), (words, done.stderr)


def test_no_pod_runs_as_root_or_writes_outside_its_volumes(manifests: list[dict[str, Any]]):
    for name, pod, _ in pods(manifests):
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {
            claim["metadata"]["name"]
            for claim in of(manifests, "StatefulSet")
            .get(name, {})
            .get("spec", {})
            .get("volumeClaimTemplates", [])
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
