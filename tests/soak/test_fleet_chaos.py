"""A pool of a program that fails, hangs and loses answers, while services and hosts are killed: no task
is lost, doubled or stuck, and nothing that the program has made is unknown to the records.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from iris.client.jobs import Job
from iris.client.problems import ClientError
from iris_core.views.fleet import SliceView
from tests.house.repository import ROOT
from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(1500)]

SECONDS = 180
MOST = 3
STRUCK = ("provisioner", "provisioner", "state", "scheduler", "nats", "gateway", *["host"] * 3)
HOST_S = 20
"""So long a host is waited for that is to be killed."""
CALL_END_S = 5
"""So long a call may outlive its provisioner."""
ORPHAN_S = 20
"""As in the configuration below."""
CONFIG = """
[state]
worker_grace_s = 6
heartbeat_interval_s = 1
poison_workers = 0

[fleet]
interval_s = 0.5
list_interval_s = 2
list_lag_s = 6
answer_timeout_s = 12
call_timeout_s = 6
delete_timeout_s = 60
orphan_s = 20
exhausted_first_s = 1
exhausted_longest_s = 4
delete_fraction = 1.0

[provisioner]
programs = ["cloud={program}"]
"""
POOL = f"""
name = "chaos"
provider = "exec"
max = {MOST}
idle_s = 4
price = 3600.0
boot_timeout_s = 40
create_rate = 60
delete_rate = 60
options = {{ program = "cloud" }}

[resources]
cpu_millis = 2000
memory_bytes = 536870912
"""
PROGRAM = """#!{python}
'''The cloud of the example, which fails, hangs, answers rubbish and loses answers until it is calm.'''
import contextlib, fcntl, json, os, random, subprocess, sys, time
from pathlib import Path

here, call, asked = Path({here!r}), sys.argv[1], sys.stdin.read()
fault = ""
if not (here / "calm").exists():
    fault = random.choice([""] * 8 + ["fails", "exhausted", "hangs", "rubbish", "loses", "loses", "is late"])
said = {{"call": call, "fault": fault, "at": time.time(), "slice": json.loads(asked).get("slice"),
        "number": json.loads(asked).get("number")}}


def note(**more):
    with (here / "calls").open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(json.dumps(said | more) + "\\n")
        log.flush()


if fault == "fails":
    sys.exit("internal error")
if fault == "exhausted" and call == "create":
    print(json.dumps({{"reason": "no capacity", "retry_after_s": 1}}))
    sys.exit(75)
if fault == "hangs":
    time.sleep(3600)
if call == "delete":
    for log in (here / "iris-cloud").glob(said["slice"] + "/*.log"):
        with contextlib.suppress(OSError):
            (here / f"{{said['number']}}-{{log.name}}").write_bytes(log.read_bytes())
done = subprocess.run([sys.executable, {example!r}, call], input=asked.encode(), capture_output=True,
                      env=os.environ | {{"HOME": str(here), "IRIS_WORKER_HEARTBEAT_INTERVAL_S": "1",
                                        "PATH": {path!r} + os.pathsep + os.environ["PATH"],
                                        "IRIS_WORKER_BINDS": str(here)}})
there = [place.name for place in (here / "iris-cloud").glob("*") if not place.name.startswith(".")]
note(code=done.returncode, there=sorted(there), error=done.stderr.decode()[-300:])
if fault == "loses":
    sys.exit("the connection was reset")
if fault == "is late":
    time.sleep(3600)
if fault == "rubbish":
    print("<html>502</html>")
    sys.exit(done.returncode)
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""
TASK = """
umask 0
exec 9>>{here}/tasks/$(echo $IRIS_TASK | tr / _)
flock -n 9 || echo $IRIS_TASK >> {here}/doubled
sleep {seconds}
echo done >&9
"""
"""Each host has users of its own: the next attempt writes to the file of another one."""


class DirectoryCloud:
    """What the program has made, in a directory."""

    def __init__(self, here: Path) -> None:
        self.here = here

    @property
    def slices(self) -> dict[str, int]:
        """Their numbers by name."""
        found = {}
        for file in (self.here / "iris-cloud").glob("*/labels.json"):
            with contextlib.suppress(OSError, ValueError):  # it goes just now
                found[file.parent.name] = int(json.loads(file.read_text())["iris-number"])
        return found

    @property
    def calls(self) -> list[dict[str, object]]:
        file = self.here / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def processes(self) -> list[psutil.Process]:
        """The workers of its hosts."""
        return [one for one in psutil.process_iter() if self._is_worker(one)]

    def calls_under_way(self, provisioner: int = 0) -> list[psutil.Process]:
        """Processes of the program: those that one provisioner has started, or all."""
        program = str(self.here / "program")
        found = psutil.process_iter(["cmdline", "ppid"])
        ours = [one for one in found if program in (one.info["cmdline"] or [])]
        return [one for one in ours if not provisioner or one.info["ppid"] == provisioner]

    def _is_worker(self, one: psutil.Process) -> bool:
        try:
            words = one.cmdline()
        except psutil.Error:
            return False
        return any(word.startswith(f"worker.data={self.here}/iris-cloud/") for word in words)

    def kill_host(self, rng: random.Random) -> str:
        """As a machine that loses its power: the worker with all that it has started. Raises
        LookupError where none comes up.
        """
        until_s = time.monotonic() + HOST_S
        while not (workers := self.processes()):
            if time.monotonic() > until_s:
                raise LookupError("no host runs")
            time.sleep(0.2)
        worker = rng.choice(workers)
        with contextlib.suppress(psutil.Error):
            worker.suspend()
            doomed = [*worker.children(recursive=True), worker]
            for one in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.suspend()
            for one in [*worker.children(recursive=True), *doomed]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        return "host"


@pytest.fixture
def cloud() -> Iterator[DirectoryCloud]:
    """The program's directory, through which users of tasks may pass: above it nobody else closes one
    again meanwhile.
    """
    here = Path(tempfile.mkdtemp(prefix="iris-fleet-"))
    here.chmod(0o755)
    for name in ("tasks", "iris-cloud"):
        (here / name).mkdir()
    (here / "tasks").chmod(0o777)
    (here / "doubled").touch()
    (here / "doubled").chmod(0o666)
    program = here / "program"
    example = str(ROOT / "examples" / "providers" / "processes.py")
    program.write_text(
        PROGRAM.format(
            python=sys.executable,
            here=str(here),
            example=example,
            path=str(Path(sys.executable).parent),
        )
    )
    program.chmod(0o755)
    made = DirectoryCloud(here)
    yield made
    for one in [*made.processes(), *made.calls_under_way()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    shutil.rmtree(here, ignore_errors=True)


@pytest.fixture
def cluster(tmp_path: Path, cloud: DirectoryCloud) -> Iterator[Cluster]:
    pool = tmp_path / "chaos.toml"
    pool.write_text(POOL)
    given = settings(tmp_path / "data", CONFIG.format(program=cloud.here / "program"))
    options = ("--workers", "0", "--replicas", "state=2", "--replicas", "provisioner=2")
    with cluster_on(tmp_path / "data", *options, "--pool", str(pool), *given) as running:
        yield running


class FleetWatch:
    """What is wrong while it runs: names that the cloud has and no live record has, for longer than
    strangers are kept; more slices than the pool may have.
    """

    def __init__(self, cluster: Cluster, cloud: DirectoryCloud) -> None:
        self.cluster, self.cloud = cluster, cloud
        self.enough = threading.Event()
        self.wrong: list[str] = []
        self._unknown: dict[tuple[str, int], float] = {}
        self._answered_s = time.monotonic()

    def run(self) -> None:
        while not self.enough.wait(0.5):
            there = self.cloud.slices
            if len(there) > MOST:
                self.wrong.append(f"{len(there)} slices of {MOST}: {there}")
            try:
                known = {one.name for one in self.cluster.client.fleet_slices()}
            except ClientError:
                continue  # somebody is dead just now
            now_s = time.monotonic()
            gap_s, self._answered_s = now_s - self._answered_s, now_s
            unknown = {key for key in there.items() if key[0] not in known}
            # time in which nobody could have done anything about it does not count
            began = {key: s + max(0.0, gap_s - 2) for key, s in self._unknown.items()}
            self._unknown = {key: began.get(key, now_s) for key in unknown}
            for key, since_s in self._unknown.items():
                if now_s - since_s > 3 * ORPHAN_S + 60:
                    self.wrong.append(
                        f"{key} is there and in no record for {now_s - since_s:.0f} s"
                    )


def asked(call: Callable[[], object]) -> object:
    """The answer of a call, repeated while services are dead."""
    while True:
        try:
            return call()
        except ClientError:
            time.sleep(0.2)


def test_nothing_is_lost_and_nothing_costs_unseen_whatever_fails(
    cluster: Cluster, cloud: DirectoryCloud
) -> None:
    seed = int(os.environ.get("FLEET_CHAOS_SEED", time.time()))
    seconds = float(os.environ.get("FLEET_CHAOS_SECONDS", SECONDS))
    rng = random.Random(seed)
    print(f"seed {seed}, {seconds:g} s")
    watch = FleetWatch(cluster, cloud)
    watching = threading.Thread(target=watch.run, daemon=True)
    watching.start()
    jobs, killed, deck = [], dict[str, int](), list[str]()
    until_s = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until_s:
        script = TASK.format(here=cloud.here, seconds=rng.choice((0.2, 1, 3, 10)))
        options = {
            "replicas": rng.randrange(1, 6),
            "cpu": rng.choice((0.5, 1, 2)),
            "memory": "64MiB",
        }
        name, number = f"burst-{number}", number + 1
        run = lambda name=name, script=script, options=options: cluster.submit(  # noqa: E731
            "sh", "-c", script, name=name, idempotency_key=name, **options
        )
        jobs.append(asked(run))
        if number % 3 == 0:
            asked(partial(jobs[-1].wait, 300))
            time.sleep(rng.uniform(4, 10))  # the pool shrinks
        time.sleep(rng.uniform(0.5, 4))
        deck = deck or rng.sample(STRUCK, len(STRUCK))
        what = deck.pop()
        with contextlib.suppress(LookupError, ProcessLookupError):
            if what == "host":
                cloud.kill_host(rng)
            elif pids := cluster.pids(what):
                pid = rng.choice(pids)
                calls = cloud.calls_under_way(pid)
                os.kill(pid, signal.SIGKILL)
                _, left = psutil.wait_procs(calls, CALL_END_S)
                assert left == [], "its calls have ended with it"
            else:
                continue
            killed[what] = killed.get(what, 0) + 1
    (cloud.here / "calm").touch()
    states = {job.name: asked(lambda job=job: job.wait(300).state) for job in jobs}
    until(
        lambda: not asked(lambda: list(cluster.client.fleet_slices())) and not cloud.slices,
        "nothing is left of the fleet",
        240,
    )
    watch.enough.set()
    watching.join(30)
    print(f"killed: {killed}; jobs: {len(jobs)}; calls: {len(cloud.calls)}")
    counts = {job.name: job.refresh().task_counts for job in jobs}
    tell(cluster, [job for job in jobs if states[job.name] != "succeeded"])
    assert number < len(STRUCK) or killed.keys() == set(STRUCK)
    assert watch.wrong == []
    assert (cloud.here / "doubled").read_text() == ""
    assert {name: state for name, state in states.items() if state != "succeeded"} == {}
    assert all(set(found) == {"succeeded"} for found in counts.values()), counts
    assert [one.cmdline() for one in cloud.processes()] == []
    judge_records(cluster, cloud)


def tell(cluster: Cluster, failed: list[Job]) -> None:
    """What happened to the pool and to jobs that failed, and what these wrote, for whoever has to find
    out why.
    """
    for one in cluster.client.pool_history("chaos"):
        print(
            f"{one.at:%H:%M:%S.%f} {one.slice} {one.id} {one.was} {one.to} {one.cause} {one.detail}"
        )
    for task in (task for job in failed for task in job.tasks()):
        ends = [(a.worker, a.cause, a.exit_code, a.error) for a in task.attempts]
        print(f"{task.task} {task.state} {ends}")
    for job in failed:
        for line in job.logs(follow=False):
            print(f"{line.task} attempt {line.attempt}: {line.line}")


def judge_records(cluster: Cluster, cloud: DirectoryCloud) -> None:
    """What was made is on record, and its cost is what usage has of the pool."""
    steps = list(cluster.client.pool_history("chaos"))
    known = {one.id for one in steps}
    made = {
        f"s{call['number']}"
        for call in cloud.calls
        if call["call"] == "create" and not call["code"]
    }
    assert made - known == set()
    ended: list[SliceView] = [
        one
        for status in ("deleted", "failed")
        for one in cluster.client.fleet_slices(status=status)
    ]
    assert {one.id for one in ended} == known
    cost = sum(one.cost for one in ended)
    billed = sum(row.cost or 0.0 for row in cluster.client.usage(by="pool"))
    print(f"slices: {len(ended)}, cost {cost:.1f}, by usage {billed:.1f}")
    assert billed == pytest.approx(cost, rel=0.02)
