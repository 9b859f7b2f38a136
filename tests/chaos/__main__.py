"""``make chaos SECONDS=60``: runs the chaos test and prints the faults and the findings as
figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from iris.client.problems import ClientError
from tests.chaos import bills, namespaces, recount, requests, serving
from tests.chaos.deployments import Deployments
from tests.chaos.guard import guarded
from tests.chaos.killer import Killer
from tests.chaos.load import Load
from tests.chaos.maps import Maps
from tests.chaos.moments import Moments
from tests.chaos.namespaces import Namespace
from tests.chaos.places import Place
from tests.chaos.proxies import Proxied, Proxies
from tests.chaos.recount import Runs
from tests.chaos.requests import Requests
from tests.chaos.scrapes import Scrapes
from tests.chaos.watch import Watch
from tests.support.certificates import make_certificate
from tests.support.cluster import Cluster, settings, start, stop
from tests.support.nats_cluster import NatsCluster

_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).parents[2]
_LOST_S, _EXPIRES_S = 4.0, 2.0
_SCRAPED = '[run]\nmetrics = "127.0.0.1:0"\n'
"""Of processes on this network; one in a namespace has no loopback address of its own."""
_CONFIG = f"""
[cluster]
restart_workers = true
[state]
worker_grace_s = {_LOST_S}
heartbeat_interval_s = 1
order_expires_s = {_EXPIRES_S}
order_timeout_s = 1
poison_workers = 0
[worker]
heartbeat_interval_s = 1
"""
"""Hosts are killed whatever runs there: three deaths in a row, each with the same task alone,
happen in some thousand attempts and prove nothing.
"""
_SHAPE = ("--sandbox", "--replicas", "state=2", "--workers", "2", "--tpu")
_SERVICES = ("state-0", "state-1", "scheduler-0")


NO_TEMPLATES = "no template is killed"
"""How a run begins to say that its calls are not cloned."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--network", choices=("auto", "namespaces", "proxies"), default="auto")
    parser.add_argument(
        "--slices", type=int, default=2, help="of four hosts each, beside two hosts without"
    )
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1, help="of NATS")
    parser.add_argument(
        "--tls", action="store_true", help="to three servers; no order is lost then"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tls and options.servers == 1:
        parser.error("--tls is to three servers")
    network = options.network if options.network != "auto" else _best_network()
    if network == "namespaces" and not options.inside:
        namespaces.enter(["-m", "tests.chaos", *sys.argv[1:], "--network", network, "--inside"])
    print(
        f"chaos for {options.seconds:g} s, seed {options.seed}, partitions by {network}"
        + (", with TLS" if options.tls else ""),
        flush=True,
    )
    hosts = [
        "worker-0",
        "worker-1",
        *(f"slice-{m}-w{n}" for m in range(options.slices) for n in range(4)),
    ]
    with (
        guarded() as directory,
        _places(directory, [*hosts, *_SERVICES], network, sealed=options.tls) as places,
        _servers(directory, options.servers, tls=options.tls) as servers,
    ):
        shape = (*_SHAPE, f"v5litepod-16x{options.slices}")
        code = 1
        try:
            code = _play(
                directory, shape, places, servers, options.seconds, random.Random(options.seed)
            )
        finally:
            if code:
                _keep_logs(directory / "data" / "log")
        return code


def _best_network() -> str:
    refusal = namespaces.refusal()
    if refusal:
        print(f"no network namespaces here: {refusal}")
    return "proxies" if refusal else "namespaces"


@contextmanager
def _places(where: Path, names: list[str], network: str, *, sealed: bool) -> Iterator[list[Place]]:
    """Every host and service its own; what clients must find, gateway and proxy, always has its way
    to NATS only.
    """
    root, proxies = where / "places", Proxies(sealed=sealed)
    made: list[Place] = [Proxied(root / name, proxies) for name in ("gateway-0", "proxy-0")]
    try:
        for number, name in enumerate(names):
            here = root / name
            made.append(
                Namespace(here, number, proxies)
                if network == "namespaces"
                else Proxied(here, proxies)
            )
        os.environ |= {
            "CHAOS_PLACES": str(root),
            "PYTHONPATH": os.pathsep.join([str(_SITE), *_path()]),
        }
        yield made
    finally:
        for place in made:
            place.close()


@contextmanager
def _servers(where: Path, count: int, *, tls: bool) -> Iterator[NatsCluster | None]:
    """Three servers instead of the embedded one, which runs and has nothing to do then."""
    if count == 1:
        yield None
        return
    shown = make_certificate(where) if tls else None
    servers = NatsCluster.on(where, hidden=True, tls=shown)
    try:
        for node in servers.nodes:
            node.start()
        asyncio.run(servers.healthy())
        os.environ["CHAOS_NATS"] = servers.url
        if shown is not None:
            os.environ["CHAOS_NATS_CA"] = str(shown[0])
        yield servers
    finally:
        servers.kill()


def _path() -> list[str]:
    return [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _play(
    where: Path,
    shape: tuple[str, ...],
    places: list[Place],
    servers: NatsCluster | None,
    seconds: float,
    rng: random.Random,
) -> int:
    data, shared = where / "data", where / "shared"
    shared.mkdir()
    for path, mode in ((where, 0o755), (shared, 0o777)):  # tasks run as users of their own
        path.chmod(mode)
    (shared / "runs").touch()
    (shared / "runs").chmod(0o666)
    began_s = time.monotonic()
    config = (
        _CONFIG
        + f'binds = ["{shared}", "{_ROOT}:ro"]\n'
        + ("[nats]\nreplicas = 3\n" if servers else "")
        + (_SCRAPED if all(place.proxy is not None for place in places) else "")
    )
    cluster = start(data, *settings(data, config), *shape, fresh=True)  # each runs `sitecustomize`
    nats_url = servers.url if servers else cluster.nats_url
    login = replace(cluster.credentials(), tls_ca=os.environ.get("CHAOS_NATS_CA", ""))
    moments = Moments(nats_url, login) if servers else None
    if moments is None:
        print("nothing is killed at the moment of an end: one server lets nobody hear workers")
    load = Load(cluster.client, shared / "runs", rng, longest_s=seconds / 6)
    maps = Maps(cluster.client, shared / "runs", random.Random(rng.random()))
    probes = iter(range(1_000_000))
    watch = Watch(cluster.client)
    scrapes = Scrapes(partial(_metrics, cluster, places))
    owner = Deployments(cluster.client, shared / "ill", random.Random(rng.random()))
    asking = Requests(cluster.file["proxy_url"], lambda: [service.name for service in owner.live])
    killer = Killer(
        cluster,
        places,
        _LOST_S,
        _EXPIRES_S,
        random.Random(rng.random()),
        lambda: _probe(cluster, next(probes)),
        lambda: bool(watch.changes["became LOST"]),
        owner.directory,
        moments,
        servers,
        login,
        clones=_clones(cluster),
    )
    with _thread(watch), _thread(asking), _thread(scrapes), _listening(moments):
        with _thread(load), _thread(maps), _thread(owner), _thread(killer):
            time.sleep(seconds)
            killer.opened.wait()
        wrong = recount.ends(cluster, load.nominations)
        wrong += maps.ends() + serving.ends(cluster, owner)
    tasks, rollouts, more = asyncio.run(recount.told(nats_url, login))
    runs = Runs(shared / "runs", tasks)
    lines, unprinted = recount.outputs(cluster, runs)
    workers = cluster.client.workers()
    print(
        "tasks ran in:", ", ".join({str(worker.attributes.get("isolation")) for worker in workers})
    )
    holders = [worker.id for worker in workers if worker.tasks or any(worker.committed.values())]
    held = [f"wrong: {worker} still holds something" for worker in holders]
    ledger, broken = asyncio.run(recount.records(nats_url, login))
    sums = cluster.client.usage(by="user")
    bill, misbilled = bills.billed(ledger, sums, time.monotonic() - began_s)
    size, too_large = bills.grown(cluster)
    endings, by_themselves = bills.ended(data.parent / f"{data.name}-up.log", data / "log")
    wrong += [
        *more,
        *killer.wrong,
        *watch.wrong,
        *scrapes.wrong,
        *serving.told(rollouts),
        *requests.wrong(asking.answers, killer.proxy_struck),
        *runs.wrong(partial(_given_up, cluster, watch)),
        *held,
        *broken,
        *misbilled,
        *too_large,
        *by_themselves,
        *unprinted,
        *recount.unstarted(cluster, tasks),
    ]
    stop(cluster)
    _print_faults(killer)
    _print_work(load, watch, tasks, runs)
    made = sum(map(len, maps.calls.values()))
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(maps.kinds.items()))
    print(
        f"maps: {made} calls of {len(maps.calls)} maps: {kinds}; {maps.refused} without an answer"
    )
    _print_serving(owner, asking, killer, rollouts)
    print(
        f"orders: {sum(place.proxy.lost for place in places if place.proxy is not None)} lost on their way"
    )
    print(
        f"scrapes: {scrapes.answered.total()} answered, {scrapes.unanswered} not: "
        + ", ".join(f"{service} {number}" for service, number in sorted(scrapes.answered.items()))
    )
    print(f"billed: {bill}; processes: {size}")
    print("ended: " + ", ".join(f"{name} {n} times" for name, n in sorted(endings.items())))
    reused = runs.adopted(killer.killed)
    print(
        f"adopted: {len(reused)} attempts to their end, {sum(map(bool, reused))} of their places used again"
    )
    print(
        f"output: {lines} lines checked, {len(unprinted)} attempts with lines lost, doubled or out of order"
    )
    return _print_verdict(wrong, tasks)


def _keep_logs(logs: Path) -> None:
    kept = tempfile.mkdtemp(prefix="iris-chaos-logs-")
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(logs, kept, dirs_exist_ok=True)
    print(f"the logs of the services are in {kept}")


@contextmanager
def _thread(
    what: Load | Maps | Deployments | Requests | Killer | Watch | Scrapes | Moments,
) -> Iterator[None]:
    """For as long as the block lasts; what it dies of is raised after that, for what it did not do
    nobody missed.

    The process does not wait for its end: against a cluster that is gone some ask for ever.
    """
    running = Future[None]()

    def run() -> None:
        try:
            running.set_result(what.run())
        except BaseException as error:  # noqa: BLE001 - raised below
            running.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield
    finally:
        what.enough.set()
        running.result(60)


def _listening(moments: Moments | None) -> AbstractContextManager[None]:
    return contextlib.nullcontext() if moments is None else _thread(moments)


def _metrics(cluster: Cluster, places: Sequence[Place]) -> Mapping[str, Sequence[str]]:
    """Where each process shows its figures, by service or place."""
    shown = {place.name: [place.metrics] for place in places if place.metrics}
    return {**cluster.file.get("metrics", {}), **shown}


def _clones(cluster: Cluster) -> bool:
    """Whether calls are cloned from templates on these hosts, said where they are not."""
    sandboxed = any(
        worker.attributes.get("isolation") == "sandbox" for worker in cluster.client.workers()
    )
    if sandboxed and os.geteuid():
        print(f"{NO_TEMPLATES}: the sandbox of an ordinary user shows the directory of one attempt")
        return False
    return True


def _probe(cluster: Cluster, number: int) -> None:
    """Return when a submission is acknowledged."""
    while True:
        try:
            cluster.client.run(
                ["true"], name=f"/probe-{number}", cpu=0.1, idempotency_key=f"probe-{number}"
            )
            return
        except ClientError:
            time.sleep(0.01)


def _given_up(cluster: Cluster, watch: Watch, run: recount.Run) -> bool:
    """Whether nobody said how an attempt ended, and its host was LOST at some time."""
    task, number = run
    attempt = cluster.client.task(task).attempts[number]
    return attempt.exit_code is None and attempt.signal is None and attempt.worker in watch.lost


def _print_faults(killer: Killer) -> None:
    print(f"{'fault':32} {'times':>5} {'recovery p50':>13} {'worst':>7}")
    for kind, number in sorted(killer.faults.items()):
        times = killer.recoveries[kind] or [float("nan")]
        print(f"{kind:32} {number:5} {statistics.median(times):11.2f} s {max(times):5.2f} s")
    every = sorted(each for times in killer.recoveries.values() for each in times)
    if every:
        p99 = every[min(len(every) - 1, int(len(every) * 0.99))]
        print(
            f"recovery: p50 {statistics.median(every):.2f} s, p99 {p99:.2f} s, of {killer.faults.total()} faults"
        )


def _print_work(load: Load, watch: Watch, tasks: recount.Told, runs: Runs) -> None:
    kinds = Counter(nomination.kind for nomination in load.nominations)
    print(
        "jobs: "
        + ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
        + f"; {load.refused} asked again"
    )
    print(f"events: {sum(map(len, tasks.values()))} of {len(tasks)} tasks")
    lost = len(
        {
            (e.task, e.attempt)
            for events in tasks.values()
            for e in events
            if e.cause == "worker_lost"
        }
    )
    print(
        f"workers: {watch.changes['became LOST']} became LOST, {watch.changes['came back']} came back; "
        f"{lost} attempts ended because their worker was LOST"
    )
    print(
        f"runs: {runs.begun.total()} of {len(runs.begun)} attempts, {runs.again} were second attempts, "
        f"{len(runs.overlaps)} while the first still ran on a LOST worker (P2 allows them)"
    )


def _print_serving(
    owner: Deployments, asking: Requests, killer: Killer, rollouts: serving.Rollouts
) -> None:
    asked = ", ".join(f"{kind} {number}" for kind, number in sorted(owner.asked.items()))
    print(
        f"deployments: {asked}; {sum(map(len, rollouts.values()))} events of {len(rollouts)} deployments"
    )
    print(f"requests: {len(asking.answers)}: {requests.counted(asking.answers)}")
    took = sorted(one.ended - one.began for one in asking.answers if one.by == requests.ROUTE)
    if took:
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        print(f"answered in: p50 {p50:.3f} s, p99 {p99:.3f} s, worst {took[-1]:.2f} s")
    away = sorted(
        end - begin for begin, end in requests.outages(sorted(asking.answers), killer.proxy_struck)
    )
    if away:
        print(
            f"proxy: away {len(away)} times, p50 {statistics.median(away):.2f} s, worst {away[-1]:.2f} s"
        )


def _print_verdict(wrong: list[str], tasks: recount.Told) -> int:
    counts = Counter(sentence.partition(":")[0] for sentence in wrong)
    print(", ".join(f"{word} {counts[word]}" for word in ("lost", "doubled", "wrong", "stuck")))
    for sentence in wrong:
        print("\n".join([f"  {sentence}", *recount.trail(tasks, sentence)]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
