"""Settings, variables, services and files that deploy/ names exist in the product."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from drawings.configuration import SECTIONS, struct_at
from iris.cli.commands.operate.server import server
from iris.cluster.settings import KEPT_SERVICES
from iris_gateway.settings import GatewaySettings
from iris_service.child import DAMAGED, MISUSED
from tests.house.repository import ROOT

DEPLOY = ROOT / "deploy"
FILES = [
    path for path in sorted(DEPLOY.rglob("*")) if path.is_file() and "grafana" not in path.parts
]
FILES.append(ROOT / "docker-compose.yml")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SET = re.compile(r"--set[ =\n\"',-]+(\w+)\.(\w+)=")
VARIABLE = re.compile(r"\bIRIS_([A-Z]+)_([A-Z_]+)\b")
SERVICES = {*KEPT_SERVICES, "worker"}
"""Everything that `iris server` runs."""
SERVER = re.compile(r"iris[\" ,]+server[\" ,]+([a-z]+)")


def keys(section: str) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct_at(SECTIONS[section][0]))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_setting_and_service_exists(path: Path):
    text = path.read_text()
    named = [(section, key) for section, key in SET.findall(text)]
    named += [(section.lower(), key.lower()) for section, key in VARIABLE.findall(text)]
    assert [
        f"{section}.{key}"
        for section, key in named
        if section not in SECTIONS or key not in keys(section)
    ] == []
    assert set(SERVER.findall(text)) <= SERVICES


def _compose() -> str:
    return (ROOT / "docker-compose.yml").read_text()


def _unit_files() -> set[str]:
    return {path.stem.removeprefix("iris-") for path in UNITS} - {"nats"}


def _enabled_units() -> set[str]:
    text = (DEPLOY / "systemd" / "README.md").read_text()
    lines = re.findall(r"^systemctl enable --now ([^#\n]*)", text, re.MULTILINE)
    return set(re.findall(r"iris-(\w+)", " ".join(lines))) - {"nats"}


def _pods() -> set[str]:
    """The services of the manifests that kustomize reads."""
    place = DEPLOY / "kubernetes"
    named = re.findall(
        r"^  - (\S+\.yaml)$", (place / "kustomization.yaml").read_text(), re.MULTILINE
    )
    texts = [(place / name).read_text() for name in named]
    return {service for text in texts for service in SERVER.findall(text)}


def _keys_of_pods() -> set[str]:
    text = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    return set(re.findall(r"secrets/keys/(\w+)[.-]", text))


def _clients_of_nats_in_pods() -> set[str]:
    text = (DEPLOY / "kubernetes" / "network.yaml").read_text()
    policy = text.partition("metadata: {name: iris-nats}")[2].partition("\n---\n")[0]
    return set(re.findall(r"iris-(\w+)", policy)) - {"nats"}


def _keys_of_compose() -> set[str]:
    text = (DEPLOY / "docker" / "init.py").read_text()
    [listed] = re.findall(r"for service in \(([^)]*), \*workers\):", text)
    return {*re.findall(r'"(\w+)"', listed), "worker"}


def _three_machines() -> set[str]:
    """What the page starts, in its loop or alone, and what it says is to be started besides."""
    text = (ROOT / "docs" / "three-machines.md").read_text()
    return {*SERVER.findall(text), *_looped(text)}


def _keys_of_three_machines() -> set[str]:
    text = (ROOT / "docs" / "three-machines.md").read_text()
    return set(re.findall(r"cluster/keys/(\w+)[.-]", text)) | {"proxy"}  # a line of its end


def _looped(text: str) -> list[str]:
    return [
        name
        for names in re.findall(r"for service in ([a-z ]+); do", text)
        for name in names.split()
    ]


def _scraped(*path: str) -> set[str]:
    return set(re.findall(r"job: iris-(\w+)", DEPLOY.joinpath(*path).read_text()))


def _keys_of_readme() -> set[str]:
    rows = re.findall(
        r"^\| `keys/([^|]*)\|", (DEPLOY / "nats" / "README.md").read_text(), re.MULTILINE
    )
    return set(re.findall(r"\w+", " ".join(rows)))


def _jobs_of_the_page() -> set[str]:
    text = " ".join((ROOT / "docs" / "operating.md").read_text().split())
    [listed] = re.findall(r"The label `job` of an address has to be (.*?)\. The label", text)
    return set(re.findall(r"`iris-(\w+)`", listed))


KINDS: dict[str, Callable[[], set[str]]] = {
    "Compose": lambda: set(re.findall(r"command: \[server, (\w+)\]", _compose())),
    "keys of Compose": _keys_of_compose,
    "targets of Compose": lambda: _scraped("docker", "targets", "iris.yml"),
    "units of systemd": _unit_files,
    "units that are enabled": _enabled_units,
    "targets of systemd": lambda: _scraped("prometheus", "targets", "iris.yml"),
    "Kubernetes": _pods,
    "keys of Kubernetes": _keys_of_pods,
    "who reaches NATS in Kubernetes": _clients_of_nats_in_pods,
    "three machines": _three_machines,
    "keys of three machines": lambda: _keys_of_three_machines() & SERVICES,
    "keys that are explained": lambda: _keys_of_readme() & SERVICES,
    "labels of Prometheus": _jobs_of_the_page,
    "labels of its configuration": lambda: set(
        re.findall(r"iris-(\w+)", (DEPLOY / "prometheus" / "prometheus.yml").read_text())
    ),
}
"""The services that each way of running a cluster has, or a part of one."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_way_of_running_a_cluster_lacks_a_service(kind: str):
    assert KINDS[kind]() == SERVICES


def test_compose_runs_two_of_each_service():
    services = _compose().partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    pairs = Counter(re.findall(r"^  (\w+)-\d:", services, re.MULTILINE))
    assert {name: count for name, count in pairs.items() if name != "nats"} == dict.fromkeys(
        SERVICES, 2
    )


def test_a_provisioner_knows_where_the_keys_of_hosts_are():
    """Without the setting it would hand out none, and no host that needs one would register."""
    named = {
        "compose": "IRIS_PROVISIONER_KEYS: /etc/iris/slots",
        "systemd": "--set provisioner.keys=/etc/iris/slots",
        "kubernetes": "{name: IRIS_PROVISIONER_KEYS, value: /etc/iris/slots}",
        "three machines": 'keys = "/etc/iris/slots"',
    }
    texts = {
        "compose": _compose(),
        "systemd": (DEPLOY / "systemd" / "iris-provisioner.service").read_text(),
        "kubernetes": (DEPLOY / "kubernetes" / "provisioner.yaml").read_text(),
        "three machines": (ROOT / "docs" / "three-machines.md").read_text(),
    }
    assert [kind for kind, words in named.items() if words not in texts[kind]] == []


def test_every_service_can_be_run_alone():
    [choice, _] = server.params
    assert set(choice.type.choices) == SERVICES


def test_settings_are_found_in_the_files():
    found = [match for path in FILES for match in SET.findall(path.read_text())]
    assert ("nats", "nkey_seed") in found


def test_prometheus_scrapes_the_ports_that_the_units_serve():
    units = {
        path.stem: re.findall(
            r"^Environment=IRIS_RUN_METRICS=(\S+)$", path.read_text(), re.MULTILINE
        )
        for path in UNITS
    }
    served = {name: found[0] for name, found in units.items() if found}
    targets = (DEPLOY / "prometheus" / "targets" / "iris.yml").read_text()
    scraped = dict(re.findall(r"job: ([\w-]+), cluster: iris\}\n  targets: \[\"(\S+)\"\]", targets))
    assert scraped == {**served, "iris-gateway": GatewaySettings().http}


def test_no_unit_is_started_again_for_what_a_restart_does_not_mend():
    services = [path for path in UNITS if "iris server" in path.read_text()]
    assert len(services) == len(SERVICES)
    assert [
        path.name
        for path in services
        if f"RestartPreventExitStatus={MISUSED} {DAMAGED}\n" not in path.read_text()
    ] == []


def test_the_unit_of_the_worker_delegates_groups_and_requires_limits():
    """`--memory` of a task is only enforced where the worker may make groups."""
    lines = (DEPLOY / "systemd" / "iris-worker.service").read_text().splitlines()
    assert {"Delegate=cpu io memory pids", "DelegateSubgroup=worker"} <= set(lines)
    assert "Environment=IRIS_WORKER_REQUIRE_LIMITS=true" in lines
    assert not [line for line in lines if line.startswith("ProtectControlGroups=y")]
