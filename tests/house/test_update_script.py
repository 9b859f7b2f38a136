"""deploy/docker/update.sh on commands that only write down what they were asked."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from iris.cluster.settings import KEPT_SERVICES
from tests.house.repository import ROOT

SCRIPT = ROOT / "deploy" / "docker" / "update.sh"
DOCKER = """\
#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in
  *"worker list"*)
    echo '{"id":"worker-1","tasks":[]}'
    echo '{"id":"worker-2","tasks":[]}' ;;
  inspect*) echo healthy ;;
  "compose exec"*"$NEVER_READY"*) [ -z "$NEVER_READY" ] ;;
esac
"""
SLEEP = """\
#!/bin/sh
echo "sleep $*" >> "$ASKED"
"""
NOT_REPLACED = {"init", "otel", "cli"}
"""A service that ends, one that is off, and the command line."""


def update(
    place: Path, *services: str, never_ready: str = ""
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the script said, and what it asked of Docker."""
    for name, text in (("docker", DOCKER), ("sleep", SLEEP)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    asked = place / "asked"
    environ = {
        "PATH": f"{place}:{os.environ['PATH']}",
        "ASKED": str(asked),
        "NEVER_READY": never_ready,
        "WITHIN": "0",
    }
    done = subprocess.run(
        [SCRIPT, *services], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    return done, asked.read_text().splitlines()


def services_of_the_file() -> set[str]:
    text = (ROOT / "docker-compose.yml").read_text()
    services = text.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    return set(re.findall(r"^  ([\w-]+):", services, re.MULTILINE))


def order_of_the_page() -> list[str]:
    """Which kinds of service docs/operating.md upgrades, in its order."""
    section = (ROOT / "docs" / "operating.md").read_text().partition("\n## Upgrading\n")[2]
    steps = re.findall(r"^\d+\. The (\w+)", section.partition("\n## ")[0], re.MULTILINE)
    names = {"proxies": "proxy", "NATS": "nats"}
    return [names.get(name, name.removesuffix("s")) for name in steps]


def test_every_service_is_replaced_once_in_the_order_of_the_page(tmp_path: Path):
    done, asked = update(tmp_path)
    assert done.returncode == 0, done.stderr
    replaced = [line.rpartition(" ")[2] for line in asked if line.startswith("compose up ")]
    assert sorted(replaced) == sorted(services_of_the_file() - NOT_REPLACED)
    kinds = list(dict.fromkeys(name.partition("-")[0] for name in replaced))
    of_page = order_of_the_page()
    assert {"nats", *KEPT_SERVICES, "worker"} == {*of_page}
    assert kinds[: len(of_page)] == of_page


def test_a_worker_is_drained_until_it_has_a_new_container(tmp_path: Path):
    done, asked = update(tmp_path, "worker-2")
    assert done.returncode == 0, done.stderr
    words = (
        "worker drain",
        "worker list",
        "rm --stop",
        "up --detach",
        "exec -T worker-2",
        "worker undrain",
    )
    assert [word for line in asked for word in words if word in line] == list(words)


def test_nginx_finds_the_new_address_before_the_other_is_replaced(tmp_path: Path):
    done, asked = update(tmp_path, "gateway-1", "gateway-2", "proxy-1", "proxy-2")
    assert done.returncode == 0, done.stderr
    told = [line for line in asked if line.startswith(("compose up", "sleep"))]
    assert [line.split()[0] for line in told] == ["compose", "sleep"] * 4
    known_s = re.search(
        r"resolver \S+ valid=(\d+)s", (ROOT / "deploy/docker/nginx.conf").read_text()
    )
    assert known_s is not None
    assert all(float(line.split()[1]) > 2 * int(known_s[1]) for line in told[1::2])


def test_the_other_of_a_pair_is_left_alone_when_the_first_is_not_ready(tmp_path: Path):
    done, asked = update(tmp_path, "state-1", "state-2", never_ready="state-1")
    assert done.returncode == 1
    assert "state-1 is not ready after 0 s" in done.stderr
    assert [line for line in asked if "state-2" in line] == []


@pytest.mark.needs("shellcheck")
def test_the_script_is_plain_shell():
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
