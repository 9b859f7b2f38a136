"""The cluster of the night shift: the three machines of the page with TLS between services and
NATS, nginx with the shipped file before the gateways, Prometheus with the shipped rules, proxies
with HTTPS, a deployment, a pool, a target of messages, and a steady load.

A fourth machine, `front`, has nginx, Prometheus and the load. Services are started by the commands
of the page, by functions of each machine's shell: ``start_nats``, ``start_worker [OPTION...]``,
``start SERVICE [OPTION...]`` and ``end PATTERN``. Builds of Iris are copies: doctor would tell a
checkout that changes meanwhile.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.house.repository import ROOT
from tests.soak.night_load import ACKNOWLEDGED
from tests.support.builds import make_build
from tests.support.certificates import Authority
from tests.support.cluster import until
from tests.support.guide import Block, blocks
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

FRONT = "front"
ADDRESSES = {
    "m1": "10.0.0.1",
    "m2": "10.0.0.2",
    "m3": "10.0.0.3",
    FRONT: "10.0.0.8",
    COMPUTER: "10.0.0.9",
}
MACHINES, PLANE = ("m1", "m2", "m3"), ("m1", "m2")
NATS = [ADDRESSES[name] for name in MACHINES]
TLS = "/etc/iris/tls"
AS_ADMIN = "IRIS_NATS_NKEY_SEED=cluster/keys/admin.seed"
PORTS = {
    "state": 9101,
    "scheduler": 9102,
    "worker": 9103,
    "proxy": 9104,
    "provisioner": 9105,
    "notifier": 9106,
}
SERVICES = "state scheduler gateway proxy provisioner notifier"
LIMITED = ("events", "logs", "results", "artifacts")
"""Streams that reserve less than the small disks of the servers have."""
READY_S = 300
OLDER = "cf355b79"
"""The commit of the older build: that of a release, once there is one before this. It is the first
whose keys are those of all services of the page.
"""
YEARS = timedelta(days=825)

_FUNCTIONS = """
address={address}
end() {{ pkill -KILL -f "$1"; while pgrep -f "$1" > /dev/null; do sleep 0.1; done; }}
stop() {{ pkill -TERM -f "$1"; while pgrep -f "$1" > /dev/null; do sleep 0.1; done; }}
start_nats() {{ {nats}
}}
start_worker() {{ {worker}
}}
start() {{
    service=$1; shift
    case $service in
        state) metrics="--set run.metrics=$address:9101" ;;
        scheduler) metrics="--set run.metrics=$address:9102" ;;
        proxy) metrics="--set run.metrics=$address:9104" ;;
        provisioner) metrics="--set run.metrics=$address:9105" ;;
        notifier) metrics="--set run.metrics=$address:9106" ;;
        *) metrics= ;;
    esac
    {service}
}}
"""
_CLOCK = """
import os
import time

ahead = int(os.environ.get("CLOCK_AHEAD_S", "0"))
if ahead:
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + ahead
    time.time_ns = lambda: true_ns() + ahead * 1_000_000_000
"""
"""At the start of Python: the clock of one process, for all machines have one kernel."""
_SMALL_DISKS = """
mkdir -p /var/lib/iris/nats /var/lib/iris/worker
mount -t tmpfs -o size=512m tmpfs /var/lib/iris/nats
truncate -s 768M {image}
mkfs.ext4 -q -m 0 {image}
mount -o loop,errors=remount-ro {image} /var/lib/iris/worker
"""
"""Those of servers and workers, which faults fill and turn read-only."""
_CHECKED = """
[proxy]
http = "0.0.0.0:8090"
tls_cert = "{tls}/proxy.pem"
tls_key = "{tls}/proxy.key"

[worker.check]
command = ["/etc/iris/check-host"]
interval_s = 5
"""
_USED = """
iris pool set spare --provider process --max 0 --cpu 1
head -c 24 /dev/urandom | base64 > secret
iris notify target add ops --webhook https://10.0.0.9:1 --secret-file secret || test $? -eq 75
"""
"""A pool that makes nothing, and a target that no message reaches: what a provisioner and a notifier
are for.
"""
_NGINX = """pid {place}/nginx.pid; error_log {place}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {place}/t1; proxy_temp_path {place}/t2;
fastcgi_temp_path {place}/t3; uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5;
include {place}/iris.conf; }}
"""


@dataclass
class Night:
    """A cluster that runs.

    Attributes:
        seen: how many lines of the load's file were looked at. spoilt: a fault that was planted was
            not cured.
    """

    machines: PageMachines
    authority: Authority
    seen: int = 0
    spoilt: bool = False

    def run(self, name: str, script: str, seconds: float = 60) -> str:
        return self.machines.shells[name].run(script, seconds)

    # ── what an operator looks at ─────────────────────────────────────────────────────────────

    def problems(self, asked: str = COMPUTER) -> dict[str, str]:
        """What doctor says is wrong: the code, and what to do. On ``your computer`` it asks the
        gateway of m1 and all servers, on m1 with the files that are there.
        """
        asking = f"{AS_ADMIN} iris doctor --config cluster/iris.toml --json"
        if asked != COMPUTER:
            own = "IRIS_NATS_NKEY_SEED=/etc/iris/state.seed IRIS_TOKEN=$(cat /etc/iris/my-token)"
            own += f" IRIS_URL=http://{ADDRESSES[asked]}:8080"
            asking = f"{own} iris doctor --config /etc/iris/iris.toml --json"
        said = self.run(asked, f"{asking} || true", READY_S)
        found = json.loads(said[said.index("{") :])["problems"]
        return {problem["code"]: problem["do"] for problem in found}

    def alerts(self) -> dict[str, str]:
        """The alerts of Prometheus whose condition holds, by name: pending or firing."""
        found = self._prometheus("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    def _prometheus(self, path: str) -> Any:
        said = self.run(FRONT, f"curl -sS http://127.0.0.1:9090/api/v1/{path}")
        return json.loads(said[said.index("{") :])["data"]

    def targets(self) -> dict[str, str]:
        """The health of every address that is scraped."""
        found = self._prometheus("targets")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in found}

    def healthy(self) -> int:
        """How many workers are."""
        return self.run(COMPUTER, "iris --retry-for 60s worker list", 90).count(" healthy ")

    def is_ready(self, name: str, port: int) -> bool:
        """Whether the process of a machine at that port says so."""
        asked = f"curl -s -o /dev/null -w '%{{http_code}}' http://{ADDRESSES[name]}:{port}/readyz"
        return self.run(name, f"{asked} || true").strip().endswith("200")

    def processes(self) -> dict[tuple[str, str], list[str]]:
        """The processes of Iris and of NATS on each machine, by machine and program."""
        found: dict[tuple[str, str], list[str]] = {}
        for name in MACHINES:
            listed = self.run(name, "pgrep -af 'iris_|nats-server' || true")
            for line in listed.splitlines():
                pid, _, words = line.partition(" ")
                if match := re.search(r"-m (iris_[a-z_.]+) |^(nats-server) ", f"{words} "):
                    found.setdefault((name, match[1] or match[2]), []).append(pid)
        return found

    # ── the load ──────────────────────────────────────────────────────────────────────────────

    @property
    def notes(self) -> Path:
        return self.machines.directory / "load.jsonl"

    def answers(self) -> list[dict[str, Any]]:
        """Those since the last look."""
        lines = self.notes.read_text().splitlines()
        found = [json.loads(line) for line in lines[self.seen :]]
        self.seen = len(lines)
        return found

    def answered(self, count: int) -> None:
        """Return when so many more requests were answered as they should be."""
        before = _right(self.notes)
        until(lambda: _right(self.notes) >= before + count, "requests are answered", READY_S)

    def states_of(self, jobs: Sequence[str]) -> dict[str, str]:
        """The state of each job, as the gateways say through nginx."""
        if not jobs:
            return {}
        (self.machines.directory / "asked").write_text("\n".join(jobs))
        asked = f"{self.loading('compare')} < {self.machines.directory}/asked"
        said = self.run(FRONT, asked, 60 + len(jobs))
        return dict(line.split(" ", 1) for line in said.splitlines() if line)

    def compare(self, jobs: Sequence[str]) -> None:
        """Wait until every acknowledged job has succeeded."""
        left = list(jobs)

        def ended() -> bool:
            states = self.states_of(left)
            left[:] = [job for job in left if states.get(job) != "succeeded"]
            wrong = {state for state in states.values() if state not in _UNDER_WAY}
            assert wrong <= {"succeeded"}, states
            return not left

        until(ended, f"all of {len(jobs)} acknowledged jobs have succeeded", READY_S, 1.0)

    def loading(self, what: str) -> str:
        place = self.machines.directory
        program = f"/opt/iris/bin/python {ROOT}/tests/soak/night_load.py"
        nginx = f"https://{ADDRESSES[FRONT]}"
        return f"{program} {what} {nginx} {self.authority.cert} {place}/token {self.notes}"

    # ── builds ────────────────────────────────────────────────────────────────────────────────

    def use_build(self, name: str, build: str) -> None:
        """What is started from now on is of that build."""
        self.run(name, f"ln -sfn /opt/iris-{build} /opt/iris")

    def install_certificate(self, name: str, file: str, lasts: timedelta) -> None:
        """A certificate of that machine and its key, under that name; who reads them is not
        told.
        """
        addresses = NATS if file == "cert" else [ADDRESSES[name]]
        cert, key = self.authority.sign(f"{name}-{file}", addresses, lasts)
        self.run(name, f"install -m 644 {cert} {TLS}/{file}.pem")
        self.run(name, f"install -m 600 {key} {TLS}/{'key.pem' if file == 'cert' else 'proxy.key'}")


_UNDER_WAY = frozenset({"pending", "running", "succeeded"})


def _right(notes: Path) -> int:
    if not notes.exists():
        return 0
    found = map(json.loads, notes.read_text().splitlines())
    return sum(1 for line in found if line["status"] in ACKNOWLEDGED)


def steps() -> list[Block]:
    """The blocks of the page that are run."""
    return [
        block for block in blocks(ROOT / "docs" / "three-machines.md") if block.language == "sh"
    ]


def functions(name: str, agents: Block, services: Block) -> str:
    """The commands of the page as functions of one machine's shell, with addresses for metrics and
    room for options, logs kept.
    """
    nats, worker = agents.script.rstrip().split("\n", 1)
    limits = "--set worker.require_limits=true"
    assert limits in worker
    address = ADDRESSES[name]
    metrics = f"--set run.metrics={address}:{PORTS['worker']}"
    worker = worker.replace(limits, f'{limits} {metrics} "$@"')
    found = re.fullmatch(r"for service in [a-z ]+; do\n(.*)\ndone\n", services.script, re.DOTALL)
    assert found
    service = found[1].replace(" > /var/log", ' $metrics "$@" > /var/log')
    text = _FUNCTIONS.format(address=address, nats=nats, worker=worker, service=service)
    return re.sub(r"(?<!>)> /var/log", ">> /var/log", text)


def with_tls(make: Block) -> str:
    """The commands of the page that make keys and configuration, with TLS."""
    files = f"--tls-cert {TLS}/cert.pem --tls-key {TLS}/key.pem --tls-ca {TLS}/ca.pem"
    script = make.script.replace("--out cluster", f"--out cluster {files}")
    assert files in script
    script = script.replace("nats://", "tls://")
    assert "[notifier]\n" in script
    script = script.replace("[notifier]\n", '[notifier]\nallow = ["10.0.0.0/8"]\n')
    limits = "".join(f"{name}_bytes = {32 << 20}\n" for name in LIMITED)
    return script.replace("replicas = 3\n", f'replicas = 3\ntls_ca = "{TLS}/ca.pem"\n{limits}')


@contextmanager
def night(directory: Path, older: str = "") -> Iterator[Night]:
    """A cluster of the checkout, with a deployment, or of the build of an older commit beside it."""
    directory.mkdir()
    with page_machines(directory, ADDRESSES) as machines:
        made = with_builds(machines, older)
        _start(made)
        made.run(COMPUTER, _USED)
        if not older:
            serve = "iris deploy create chat --port http --cpu 0.1 --probe-tcp"
            command = "sh -c 'exec python3 -m http.server $IRIS_PORT_HTTP'"
            made.run(COMPUTER, f"{serve} -- {command}")
        yield made


def with_builds(machines: PageMachines, older: str = "") -> Night:
    """On each machine the build of the checkout, and that of an older commit, if any, which is
    used.
    """
    directory = machines.directory
    builds = directory / "builds"
    found = [make_build(builds / "new", "/opt/iris-new")]
    found += [make_build(builds / "old", "/opt/iris-old", older)] if older else []
    for build in found:
        [packages] = (build / "lib").glob("python*/site-packages")
        (packages / "sitecustomize.py").write_text(_CLOCK)
    (directory / "authority").mkdir()
    made = Night(machines, Authority(directory / "authority"))
    for name in machines.addresses:
        for build in found:
            place = directory / name.rpartition(" ")[2] / "disk" / "opt" / f"iris-{build.name}"
            shutil.copytree(build, place, symlinks=True)
        made.use_build(name, "old" if older else "new")
    return made


def _start(made: Night) -> None:
    machines = made.machines
    install, make, copy, agents, services, contexts, hello, *_ = steps()
    for name in MACHINES:
        made.run(name, _SMALL_DISKS.format(image=f"{machines.directory}/{name}.ext4"))
        made.run(name, f"mkdir -p {TLS}; install -m 644 {made.authority.cert} {TLS}/ca.pem")
        for file in ("cert", "proxy"):
            made.install_certificate(name, file, YEARS)
        made.run(name, "printf '#!/bin/sh\\nexit 0\\n' > /etc/iris/check-host")
        made.run(name, "chmod 755 /etc/iris/check-host")
    for name in (FRONT, COMPUTER):
        made.run(name, f"mkdir -p {TLS}; install -m 644 {made.authority.cert} {TLS}/ca.pem")
        made.run(name, install.script)
    machines.run(install)
    made.run(COMPUTER, with_tls(make))
    made.run(COMPUTER, f"cat >> cluster/iris.toml <<'END'{_CHECKED.format(tls=TLS)}END\n")
    machines.run(copy)
    for name in PLANE:
        made.run(COMPUTER, f"scp cluster/keys/proxy.seed root@{ADDRESSES[name]}:/etc/iris")
        made.run(COMPUTER, f"scp token root@{ADDRESSES[name]}:/etc/iris/my-token")
    for name in MACHINES:
        made.run(name, functions(name, agents, services))
        made.run(name, "start_nats\nstart_worker")
    for name in PLANE:
        made.run(name, f"for each in {SERVICES}; do start $each; done")
    for name in PLANE:
        until(
            lambda name=name: made.is_ready(name, 8080), f"the gateway of {name} is ready", READY_S
        )
    machines.run(contexts)
    made.run(COMPUTER, "iris context use m1")
    until(lambda: made.healthy() == 3, "three workers have registered", READY_S)
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3
    start_nginx(made)
    start_prometheus(made)
    start_load(made)


def start_nginx(made: Night) -> None:
    """With the file of deploy/ before both gateways, on `front`."""
    place = made.machines.directory / "nginx"
    place.mkdir()
    cert, key = made.authority.sign("nginx", [ADDRESSES[FRONT]], YEARS)
    conf = (ROOT / "deploy" / "nginx" / "iris.conf").read_text()
    for port in (8080, 8090):
        [example] = [line for line in conf.splitlines() if f"server 127.0.0.1:{port} " in line]
        servers = [example.replace("127.0.0.1", ADDRESSES[name]) for name in PLANE]
        conf = conf.replace(example, "\n".join(servers))
    conf = conf.replace("/etc/iris/tls/cert.pem", str(cert)).replace(
        "/etc/iris/tls/key.pem", str(key)
    )
    (place / "iris.conf").write_text(conf)
    (place / "nginx.conf").write_text(_NGINX.format(place=place))
    made.run(FRONT, f"nginx -g 'user root;' -c {place}/nginx.conf")


def start_prometheus(made: Night) -> None:
    """With the rules of deploy/, which scrapes every process each 5 s, on `front`."""
    place = made.machines.directory / "prometheus"
    (place / "targets").mkdir(parents=True)
    deployed = ROOT / "deploy" / "prometheus"
    config = (deployed / "prometheus.yml").read_text().replace("15s", "5s")
    (place / "prometheus.yml").write_text(config)
    shutil.copy(deployed / "alerts.yml", place)
    where = {f"iris-{service}": (port, PLANE) for service, port in PORTS.items()}
    where["iris-worker"] = (PORTS["worker"], MACHINES)
    where["iris-gateway"] = (8080, PLANE)
    groups = [
        {
            "labels": {"job": job, "cluster": "iris"},
            "targets": [f"{ADDRESSES[name]}:{port}" for name in names],
        }
        for job, (port, names) in where.items()
    ]
    (place / "targets" / "iris.json").write_text(json.dumps(groups))
    options = f"--config.file={place}/prometheus.yml --storage.tsdb.path={place}/data"
    options += " --web.listen-address=127.0.0.1:9090"
    made.run(FRONT, f"prometheus {options} > {place}/prometheus.log 2>&1 &")
    answers = "curl -sf -o /dev/null http://127.0.0.1:9090/-/ready && echo yes || true"
    until(lambda: "yes" in made.run(FRONT, answers), "Prometheus is ready", READY_S)
    until(
        lambda: Counter(made.targets().values()) == {"up": 15}, "every target is scraped", READY_S
    )


def start_load(made: Night) -> None:
    """Requests through nginx with the token of the page, until `front` is off."""
    made.run(COMPUTER, f"install -m 600 token {made.machines.directory}/token")
    log = made.machines.directory / "load.log"
    made.run(FRONT, f"{made.loading('load')} > {log} 2>&1 &")
    made.answered(20)
