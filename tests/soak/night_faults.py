"""Faults that an operator meets, by name: how each is planted on the cluster of `tests.soak.night`,
how it is told, and what is done about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from tests.soak.night import AS_ADMIN, COMPUTER, MACHINES, NATS, PLANE, TLS, YEARS, Night
from tests.support.cluster import until

TOLD_S = 60
LOOK_S = 0.5
CURED_S = 180
USUAL = frozenset({"unscoped_sockets"})
"""What depends on the kernel of this machine."""
Steps = dict[str, str] | Callable[[Night], None]
"""Commands by machine, or what is done to the cluster."""

EDIT = "sed -i 's#^data = .*#&\\n{line}#' /etc/iris/iris.toml"
UNDO = "sed -i '/^{name} = /d' /etc/iris/iris.toml"
AGAIN = "end iris_worker; start_worker"
URLS = ",".join(f"tls://{address}:4222" for address in NATS)
BACKUP = f"IRIS_NATS_TLS_CA={TLS}/ca.pem {AS_ADMIN} iris admin backup iris.backup --nats {URLS}"
COPY_ACCOUNTS = "for m in 1 2 3; do scp cluster/accounts.conf root@10.0.0.$m:/etc/iris; done"
READ_ACCOUNTS = "for n in 1 2; do nats-server --signal reload=$(pgrep -x nats-server); done"
LAG = "while pkill -STOP -x nats-server; do sleep 3; pkill -CONT -x nats-server; sleep 0.3; done"
"""It gets to run a tenth of the time, as on a machine or behind a link that is too slow."""
DISK = "/var/lib/iris/worker"
WORKER = frozenset({"iris_worker", "iris_worker.launcher.launcher"})


@dataclass(frozen=True)
class Fault:
    """What is done, how it is told, and what is done about it.

    Attributes:
        code: what doctor calls it. follows: words of doctor's
            remedy that ``cured`` does.
        alert: one whose condition holds meanwhile. asked: the machine on which doctor is run.
        ends: machines and programs that the fault or its remedy ends.
    """

    planted: Steps
    code: str
    follows: str
    cured: Steps
    alert: str = ""
    asked: str = COMPUTER
    ends: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def of_worker(code: str, line: str, follows: str) -> Fault:
    """A setting of m3's worker, which is started again with and without it."""
    name = line.partition(" ")[0]
    return Fault(
        {"m3": f"{EDIT.format(line=line)}\n{AGAIN}"},
        code,
        follows,
        {"m3": f"{UNDO.format(name=name)}\n{AGAIN}"},
        ends=frozenset(("m3", program) for program in WORKER),
    )


def of_service(code: str, follows: str, service: str, *machines: str, alert: str = "") -> Fault:
    """A service that has ended on some machines."""
    return Fault(
        dict.fromkeys(machines, f"end iris_{service}"),
        code,
        follows,
        dict.fromkeys(machines, f"start {service}"),
        alert=alert,
        ends=frozenset((name, f"iris_{service}") for name in machines),
    )


def of_disk(code: str, follows: str, planted: str, cured: str) -> Fault:
    """What becomes of the small disk of m3's worker."""
    return Fault(
        {"m3": planted.format(disk=DISK)},
        code,
        follows,
        {"m3": cured.format(disk=DISK)},
        alert="IrisWorkersDegraded" if code == "worker_degraded" else "",
    )


NOTE = """
import asyncio
import sys
import time

from iris_bus.connection.connection import Credentials
from iris_bus.jetstream import connect
from iris_core import subjects


async def note() -> None:
    own = Credentials("cluster/keys/admin.seed", tls_ca=sys.argv[2])
    connection = await connect(sys.argv[1], name="note", credentials=own)
    long_ago = str(int((time.time() - 3 * 86400) * 1000))
    await connection.streams.annotate(subjects.JOURNAL.name, subjects.LAST_BACKUP, long_ago)
    await connection.close()


asyncio.run(note())
"""
"""Of a backup of three days ago."""


def make_old_backup(cluster: Night) -> None:
    cluster.run(COMPUTER, f"cat > note.py <<'END'\n{NOTE}END\n")
    cluster.run(COMPUTER, f"/opt/iris/bin/python note.py {URLS} {TLS}/ca.pem")


def expire(cluster: Night) -> None:
    cluster.install_certificate("m2", "proxy", timedelta(days=-1))


def renew(cluster: Night) -> None:
    cluster.install_certificate("m2", "proxy", YEARS)


def replace_certificate(cluster: Night, days: int) -> None:
    """That of m2's NATS server, which reads it."""
    cluster.install_certificate("m2", "cert", timedelta(days=days))
    cluster.run("m2", "nats-server --signal reload=$(pgrep -x nats-server)")


def restart_expired(cluster: Night) -> None:
    cluster.install_certificate("m2", "cert", timedelta(days=-1))
    cluster.run("m2", "end nats-server; start_nats")


FAULTS = {
    "no backup was ever made": Fault(
        {}, "no_backup", "run `iris admin backup` now", {COMPUTER: BACKUP}, "IrisBackupOld"
    ),
    "the last backup is three days old": Fault(
        make_old_backup,
        "no_backup",
        "run `iris admin backup` now",
        {COMPUTER: BACKUP},
        "IrisBackupOld",
    ),
    "a NATS server has ended": Fault(
        {"m3": "end nats-server"},
        "server_down",
        "start it again",
        {"m3": "start_nats"},
        alert="IrisNatsServerDown",
        ends=frozenset({("m3", "nats-server")}),
    ),
    "a NATS server has no room": Fault(
        {"m3": "dd if=/dev/zero of=/var/lib/iris/nats/full bs=64k || true"},
        "disk_full",
        "free disk space; restart a NATS server of your own after a failed write",
        {"m3": "rm /var/lib/iris/nats/full\nend nats-server\nstart_nats"},
        ends=frozenset({("m3", "nats-server")}),
    ),
    "a NATS server lags": Fault(
        {"m3": f"({LAG}) & echo $! > /root/lag"},
        "server_behind",
        "when that lasts, look at its disk and its network",
        {"m3": "kill $(cat /root/lag); pkill -CONT -x nats-server"},
    ),
    "both schedulers have ended": of_service(
        "no_scheduler", "start a scheduler", "scheduler", *PLANE, alert="IrisNoScheduler"
    ),
    "a NATS server hangs": Fault(
        {"m3": "pkill -STOP -x nats-server"},
        "server_down",
        "start it again",
        {"m3": "pkill -CONT -x nats-server"},
        alert="IrisNatsServerDown",
    ),
    "both schedulers hang": Fault(
        dict.fromkeys(PLANE, "pkill -STOP -f iris_scheduler"),
        "no_scheduler",
        "start a scheduler",
        dict.fromkeys(PLANE, "end iris_scheduler; start scheduler"),
        ends=frozenset((name, "iris_scheduler") for name in PLANE),
    ),
    "schedulers have no records": Fault(
        dict.fromkeys(PLANE, "end iris_state; end iris_scheduler; start scheduler"),
        "not_ready",
        "look at the log of the state service",
        dict.fromkeys(PLANE, "start state"),
        alert="IrisSchedulerStale",
        ends=frozenset((name, f"iris_{each}") for name in PLANE for each in ("state", "scheduler")),
    ),
    "the first state service has ended": of_service(
        "no_standby", "start a second state service", "state", "m1", alert="IrisNoStandby"
    ),
    "the second state service has ended": of_service(
        "no_standby", "start a second state service", "state", "m2", alert="IrisNoStandby"
    ),
    "a state service hangs": Fault(
        {"m1": "pkill -STOP -f iris_state"},
        "no_standby",
        "start a second state service",
        {"m1": "end iris_state; start state"},
        ends=frozenset({("m1", "iris_state")}),
    ),
    "all state services have ended": of_service(
        "not_ready", "look at the log of the state service", "state", *PLANE, alert="IrisNoLeader"
    ),
    "the gateway that is asked has ended": of_service(
        "gateway_unreachable",
        "that the gateway runs there",
        "gateway",
        "m1",
        alert="IrisServiceDown",
    ),
    "the gateway that is asked hangs": Fault(
        {"m1": "pkill -STOP -f iris_gateway"},
        "gateway_unreachable",
        "that the gateway runs there",
        {"m1": "end iris_gateway; start gateway"},
        alert="IrisServiceDown",
        ends=frozenset({("m1", "iris_gateway")}),
    ),
    "no proxy is beside a deployment": of_service(
        "no_proxy", "start a proxy", "proxy", *PLANE, alert="IrisServiceDown"
    ),
    "no provisioner is beside a pool": of_service(
        "no_provisioner",
        "start a provisioner",
        "provisioner",
        *PLANE,
        alert="IrisServiceDown",
    ),
    "no notifier is beside a target": of_service(
        "no_notifier", "start a notifier", "notifier", *PLANE, alert="IrisServiceDown"
    ),
    "a worker has ended": Fault(
        {"m3": "end iris_worker"},
        "worker_lost",
        "start its worker again",
        {"m3": "start_worker"},
        alert="IrisWorkersLost",
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "a worker hangs": Fault(
        {"m3": "pkill -STOP -f 'm iris_worker '"},
        "worker_lost",
        "start its worker again",
        {"m3": "end 'm iris_worker '; start_worker"},
        alert="IrisWorkersLost",
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "a worker advertises loopback": of_worker(
        "loopback_address", 'address = "127.0.0.1"', "or leave it out"
    ),
    "a worker declares more memory than there is": of_worker(
        "overdeclared", "memory_bytes = 9000000000000", "or leave it out"
    ),
    "a worker declares a disk that it has not": of_worker(
        "overdeclared", "disk_bytes = 9000000000000", "or leave it out"
    ),
    "tasks of a worker reach no gateway": Fault(
        {
            "m3": f"sed -i 's#^gateway_url = .*#gateway_url = \"http://10.0.0.3:1\"#' /etc/iris/iris.toml\n{AGAIN}"
        },
        "gateway_dead",
        "set gateway_url of [worker] to the address",
        {
            "m3": f"sed -i 's#^gateway_url = .*#gateway_url = \"http://10.0.0.1:8080\"#' /etc/iris/iris.toml\n{AGAIN}"
        },
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "memory of tasks is not limited": Fault(
        {
            "m3": "end iris_worker; start_worker --set worker.require_limits=false --set worker.cgroups=false"
        },
        "limits_off",
        "control groups that the worker may write",
        {"m3": AGAIN},
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "the check of a host fails": Fault(
        {"m3": "printf '#!/bin/sh\\necho 7 of 8 GPUs answer; exit 1\\n' > /etc/iris/check-host"},
        "worker_degraded",
        "solve what it reports",
        {"m3": "printf '#!/bin/sh\\nexit 0\\n' > /etc/iris/check-host"},
        alert="IrisWorkersDegraded",
    ),
    "the disk of a worker is full": of_disk(
        "worker_degraded",
        "solve what it reports",
        "dd if=/dev/zero of={disk}/full bs=1M || true",
        "rm {disk}/full",
    ),
    "the disk of a worker is mounted noexec": Fault(
        {"m3": f"mount -o remount,noexec {DISK}; {AGAIN}"},
        "noexec_data",
        "mounted without noexec",
        {"m3": f"mount -o remount,exec {DISK}; {AGAIN}"},
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "the clock of another gateway is off": Fault(
        {"m2": "end iris_gateway; CLOCK_AHEAD_S=180 start gateway"},
        "clock_off",
        "synchronise the clocks",
        {"m2": "end iris_gateway; start gateway"},
        ends=frozenset({("m2", "iris_gateway")}),
    ),
    "the clock of a worker is off": Fault(
        {"m3": "end iris_worker; CLOCK_AHEAD_S=-180 start_worker"},
        "clock_off",
        "synchronise the clocks",
        {"m3": AGAIN},
        ends=frozenset(("m3", program) for program in WORKER),
    ),
    "the certificate of a proxy has expired": Fault(
        expire,
        "certificate_expires",
        "put a new certificate and key in place",
        renew,
        "IrisCertificateExpires",
    ),
    "the certificate of a NATS server expires soon": Fault(
        partial(replace_certificate, days=3),
        "certificate_expires",
        "a NATS server at `nats-server --signal reload`",
        partial(replace_certificate, days=825),
    ),
    "a NATS server was started with an expired certificate": Fault(
        restart_expired,
        "certificate_expires",
        "a NATS server at `nats-server --signal reload`",
        partial(replace_certificate, days=825),
        ends=frozenset({("m2", "nats-server")}),
    ),
    "a key is not known to the servers": Fault(
        {COMPUTER: "iris admin nats-config --out cluster --worker m4"},
        "key_refused",
        "have the server read the accounts.conf that was written with the key",
        {
            COMPUTER: COPY_ACCOUNTS,
            **dict.fromkeys(MACHINES, READ_ACCOUNTS),
        },
    ),
    "accounts lack rights of this release": Fault(
        dict.fromkeys(
            MACHINES,
            f"sed -i 's/, \"$SYS.REQ.USER.INFO\"//' /etc/iris/accounts.conf\n{READ_ACCOUNTS}",
        ),
        "missing_permission",
        "have each server read accounts.conf twice",
        {
            COMPUTER: f"iris admin nats-config --out cluster\n{COPY_ACCOUNTS}",
            **dict.fromkeys(MACHINES, READ_ACCOUNTS),
        },
    ),
    "two gateways have different tokens": Fault(
        {"m2": f"echo 'bo user {'b' * 64}' >> /etc/iris/tokens"},
        "different_tokens",
        "give every gateway the same token_file",
        {COMPUTER: "scp cluster/tokens root@10.0.0.2:/etc/iris"},
    ),
    "all can write the token file": Fault(
        {"m1": "chmod 666 /etc/iris/tokens"},
        "writable_files",
        "chmod go-w these files",
        {"m1": "chmod go-w /etc/iris/tokens"},
        asked="m1",
    ),
    "all can read a key": Fault(
        {COMPUTER: "chmod 644 cluster/keys/state.seed"},
        "readable_keys",
        "chmod 600 these files",
        {COMPUTER: "chmod 600 cluster/keys/state.seed"},
    ),
}


def do(cluster: Night, steps: Steps) -> None:
    if callable(steps):
        steps(cluster)
        return
    for name, script in steps.items():
        cluster.run(name, script)


def told(cluster: Night, fault: Fault) -> str:
    """What doctor says to do, once it and the alert have told the fault."""
    do = cluster.problems(fault.asked).get(fault.code, "")
    return do if not fault.alert or fault.alert in cluster.alerts() else ""


def quiet(cluster: Night, fault: Fault, known: Set[str]) -> bool:
    """Whether doctor says nothing but what is known, nor the fault's alert anything."""
    return cluster.problems(fault.asked).keys() <= known and fault.alert not in cluster.alerts()


def plant_and_cure(cluster: Night, name: str, known: Set[str]) -> None:
    """Plant a fault, which is told within a minute and gone after its remedy, and nothing has ended
    that should not have.

    ``known``: what doctor says besides.
    """
    fault = FAULTS[name]
    before = cluster.processes()
    do(cluster, fault.planted)
    planted = time.monotonic()
    do_this = until(
        partial(told, cluster, fault), f"{fault.code} {fault.alert} is told", TOLD_S, LOOK_S
    )
    assert fault.follows in do_this
    print(f"{name}: told after {time.monotonic() - planted:.1f} s")

    do(cluster, fault.cured)
    gone = f"nothing is told after the remedy of {name}"
    until(partial(quiet, cluster, fault, known), gone, CURED_S, LOOK_S)
    until(lambda: cluster.healthy() == 3, "three workers are there", CURED_S, LOOK_S)
    after = cluster.processes()
    for each in before.keys() - fault.ends:
        assert before[each] == after.get(each), f"{each} has ended"
    assert {each: len(pids) for each, pids in before.items()} == {
        each: len(pids) for each, pids in after.items()
    }
