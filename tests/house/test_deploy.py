"""Settings, variables, services and files that deploy/ names exist in the product."""

import re
from pathlib import Path

import msgspec
import pytest

from drawings.configuration import SECTIONS, struct_at
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
    assert set(SERVER.findall(text)) <= {"state", "scheduler", "gateway", "proxy", "worker"}


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
    assert len(services) == 5
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
