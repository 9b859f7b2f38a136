"""What is wrong, in a sentence for each thing: the judgements of `iris doctor` over collected
facts. Pure.

Out of scope: why it matters and what to do (`iris.doctor.checks`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from iris.doctor.facts import ClusterFacts, GatewayFacts
from iris_bus.servers.bus_facts import BusFacts, ConnectedProcess, KeyFacts
from iris_bus.streams.declarations import COPIES
from iris_core.access.roles import login_of, permissions
from iris_core.messages.processes import FIRST_CLUSTER_NAME, NO_TOKEN_FILE
from iris_core.subjects import JOURNAL, LAST_BACKUP, STREAMS
from iris_core.units import counted

CLOCK_S = 3.0
"""A clock may differ by so much."""
MAX_CLOCK_SKEW_S = 10.0
"""A host may seem behind by so much, because its heartbeat arrived late."""
FREE_BYTES = 1 << 30
CERTIFICATE_DAYS = 7
BACKUP_DAYS = 2
_DAY_S = 86_400.0
_NEARLY_FULL = 0.95
_NAMES = 5
NO_GATEWAY = "none is known; --url or IRIS_URL says where it is, and `iris up` starts a local one"
_FULL_WORDS = ("write error", "no space", "insufficient storage")


def some(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


# ── the gateway ───────────────────────────────────────────────────────────────────────────────────


def unreachable(facts: ClusterFacts) -> Iterator[str]:
    if facts.gateway is not None:
        yield from some(facts.gateway.error)
    elif facts.bus is None:
        yield f"no gateway can be checked: {NO_GATEWAY}"


def wrong_token(gateway: GatewayFacts) -> Iterator[str]:
    if gateway.refused and gateway.token:
        yield f"the gateway at {gateway.url} does not accept the token from {gateway.token}: {gateway.refused}"
    elif gateway.refused:
        yield f"the gateway at {gateway.url} requires a token, and none was given: {gateway.refused}"


def token_files(gateway: GatewayFacts) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, tokens in gateway.tokens.items():
        found[tokens].append(name + (" without a token_file" if tokens == NO_TOKEN_FILE else ""))
    if len(found) > 1:
        yield f"{len(gateway.tokens)} gateways accept different tokens: {'; '.join(map(listed, found.values()))}"


def no_proxy(gateway: GatewayFacts) -> Iterator[str]:
    known = gateway.processes if gateway.deployments else None
    if known is not None and not any(process.service == "proxy" for process in known):
        yield "there are deployments, and no proxy answers"


def no_provisioner(gateway: GatewayFacts) -> Iterator[str]:
    known = gateway.processes if gateway.pools else None
    if known is not None and not any(process.service == "provisioner" for process in known):
        yield "there are pools, and no provisioner answers"


def no_notifier(facts: ClusterFacts) -> Iterator[str]:
    if lacks_notifier(facts) and facts.bus is not None and facts.bus.has_targets:
        yield "there are targets for messages, and no notifier answers"


def lacks_notifier(facts: ClusterFacts) -> bool:
    """As the gateway's question to all processes says, else as the connections to the servers."""
    known = facts.gateway.processes if facts.gateway is not None else None
    every = known if known is not None else _processes(facts.bus)
    return bool(every) and not any(process.service == "notifier" for process in every)


def halted_pool(gateway: GatewayFacts) -> Iterator[str]:
    """Pools that no person has paused: what their provider refuses no repeat mends, or more fails
    there than may be given up.
    """
    for pool in gateway.pools:
        if pool.state in ("paused", "stopped") and not pool.by_hand:
            yield f"pool {pool.name} is {pool.state}: {pool.reason}"


def warned_project(gateway: GatewayFacts) -> Iterator[str]:
    for path, warnings in gateway.projects.items():
        yield from (f"project {path}: {warning}" for warning in warnings)


def warned_pool(gateway: GatewayFacts) -> Iterator[str]:
    for pool in gateway.pools:
        yield from (f"pool {pool.name}: {warning}" for warning in pool.warnings)


def certificate_expires(facts: ClusterFacts) -> Iterator[str]:
    """Certificates of listeners, of this cluster's clients of NATS, and of the NATS servers, that
    have expired or soon will.
    """
    gateway, bus = facts.gateway, facts.bus
    if gateway is not None:
        for process in gateway.processes or ():
            for path, expires_s in sorted(process.certificates.items()):
                yield from _expiring(f"{path} of {process}", expires_s, gateway.now_s)
    if bus is not None:
        for address, expires_s in bus.certificates.items():
            yield from _expiring(f"of the NATS server at {address}", expires_s, bus.now_s)


def _expiring(of: str, expires_s: float, now_s: float) -> Iterator[str]:
    if expires_s <= now_s:
        yield f"the certificate {of} expired {moment(expires_s)}"
    elif expires_s - now_s < CERTIFICATE_DAYS * _DAY_S:
        yield f"the certificate {of} expires {moment(expires_s)}"


def moment(at_s: float) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("on %Y-%m-%d at %H:%M UTC")


def no_healthy_worker(gateway: GatewayFacts) -> Iterator[str]:
    if gateway.workers is None or any(worker.state == "healthy" for worker in gateway.workers):
        return
    count = len(gateway.workers)
    yield f"none of {counted(count, 'worker')} is healthy" if count else "no worker has registered"


def degraded_worker(gateway: GatewayFacts) -> Iterator[str]:
    for worker in gateway.workers or ():
        if worker.state == "degraded":
            yield f"worker {worker.id} is degraded: {worker.detail}"


def ended_workers(facts: ClusterFacts) -> Iterator[str]:
    known = facts.gateway.workers if facts.gateway is not None else None
    again_s = {
        worker.id: worker.registered_s for worker in known or ()
    }  # somebody may have started one by hand
    if gone := [name for name, ended_s in facts.gone.items() if again_s.get(name, 0.0) < ended_s]:
        yield f"{listed(gone)} of `iris up` ended and is not restarted; its log is in {facts.data}/log"


def lost_worker(gateway: GatewayFacts) -> Iterator[str]:
    workers = gateway.workers or ()
    lost = [worker.id for worker in workers if worker.state == "lost" and not worker.given_up]
    if lost and any(worker.state == "healthy" for worker in workers):
        yield f"{len(lost)} of {counted(len(workers), 'host')} {'is' if len(lost) == 1 else 'are'} LOST: {listed(lost)}"


def warning_of_worker(code: str) -> Callable[[GatewayFacts], Iterator[str]]:
    """What workers find out about themselves, under that code."""

    def judge(gateway: GatewayFacts) -> Iterator[str]:
        for worker in gateway.workers or ():
            if worker.state != "lost" and code in worker.warnings:
                yield f"worker {worker.id}: {worker.warnings[code]}"

    return judge


def warnings_alike(gateway: GatewayFacts, code: str) -> dict[str, list[str]]:
    """The workers that warn under that code, by the words of the warning."""
    found: dict[str, list[str]] = defaultdict(list)
    for worker in gateway.workers or ():
        if worker.state != "lost" and code in worker.warnings:
            found[worker.warnings[code]].append(worker.id)
    return found


# ── disks ─────────────────────────────────────────────────────────────────────────────────────────


def full_disk(facts: ClusterFacts) -> Iterator[str]:
    if facts.data and facts.free_bytes < FREE_BYTES:
        yield f"{facts.free_bytes >> 20} MiB are free for {facts.data}"
    if facts.bus is None:
        return
    for name in stopped_storing(facts.bus):
        yield f"NATS server {name} has copies of streams and stores nothing any more, as after a failed write"
    for server in facts.bus.servers:
        if any(words in server.error for words in _FULL_WORDS):
            yield f"NATS server {server.name} cannot store: {server.error}"
        elif server.max_bytes and server.stored_bytes > _NEARLY_FULL * server.max_bytes:
            yield f"the store of NATS server {server.name} holds {server.stored_bytes} of {server.max_bytes} bytes"


# ── NATS servers ──────────────────────────────────────────────────────────────────────────────────


def no_jetstream(bus: BusFacts) -> Iterator[str]:
    stopped = stopped_storing(bus)
    names = [
        server.name for server in bus.servers if not server.jetstream and server.name not in stopped
    ]
    if not bus.jetstream:
        yield f"the NATS server at {bus.url} stores nothing: JetStream is off, there or for the account"
    elif names and len(names) < len(bus.servers):
        yield f"JetStream is off on {listed(names)}"


def stopped_storing(bus: BusFacts) -> list[str]:
    """Servers of a cluster that answer and have copies of streams, with JetStream off: a server
    ends it when a write fails, and says no more of it than one that was never configured to store.
    """
    known = {name for stream in bus.streams for name in (*stream.offline, *stream.behind)}
    return [server.name for server in bus.servers if not server.jetstream and server.name in known]


def memory_storage(bus: BusFacts) -> Iterator[str]:
    names = [stream.name for stream in bus.streams if stream.storage != "file"]
    if names:
        yield f"{listed(names)} {'is' if len(names) == 1 else 'are'} kept in the memory of the NATS servers"


def no_sync(bus: BusFacts) -> Iterator[str]:
    for server in bus.servers:
        if server.jetstream and not server.sync_always:
            often = f"every {server.sync_s:g} s" if server.sync_s else "now and then"
            yield f"NATS server {server.name} syncs its store to disk {often}, not before it confirms"


def unhealthy_server(bus: BusFacts) -> Iterator[str]:
    stopped = stopped_storing(bus)
    for server in bus.servers:
        if server.name in stopped:
            continue
        if server.error and not any(words in server.error for words in _FULL_WORDS):
            yield f"NATS server {server.name} is not healthy: {server.error}"


def server_down(bus: BusFacts) -> Iterator[str]:
    answering = stopped_storing(bus)
    offline = sorted({name for stream in bus.streams for name in stream.offline} - {*answering})
    down = bus.size - len(bus.servers) if bus.servers else 0
    if down > 0:
        named = f": {listed(offline)}" if offline else ""
        yield f"{down} of {counted(bus.size, 'NATS server')} {'does' if down == 1 else 'do'} not answer{named}"
    elif offline:
        yield f"{listed(offline)} of the NATS servers {'does' if len(offline) == 1 else 'do'} not answer the others"


def small_store(bus: BusFacts) -> Iterator[str]:
    """Servers whose store has no room for what streams may hold, which the server reserves when a
    stream is made.
    """
    wanted = sum(stream.max_bytes for stream in STREAMS)
    found = {stream.name for stream in bus.streams}
    missing = [stream.name for stream in STREAMS if stream.max_bytes and stream.name not in found]
    for server in bus.servers:
        if missing and found and 0 < server.max_bytes < wanted:
            yield (
                f"NATS server {server.name} may store {server.max_bytes} bytes, and streams reserve up to {wanted}: "
                f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} not there"
            )


def no_scheduler(facts: ClusterFacts) -> Iterator[str]:
    """None answers the gateway, or none is connected though a state service is."""
    services = {process.service for process in _processes(facts.bus)}
    if facts.gateway is not None and facts.gateway.unscheduled:
        yield facts.gateway.unscheduled
    elif "state" in services and "scheduler" not in services:
        yield "no scheduler is connected to the NATS servers"


def no_standby(facts: ClusterFacts) -> Iterator[str]:
    """Several NATS servers and one state service: as the gateway's question to all processes says,
    else as the connections to the servers do.
    """
    size = facts.bus.size if facts.bus is not None else 0
    known = facts.gateway.processes if facts.gateway is not None else None
    every = known if known is not None else _processes(facts.bus)
    states = [process.host for process in every if process.service == "state"]
    if size > 1 and len(states) == 1:
        yield f"there are {size} NATS servers and one state service, on {states[0]}"


def no_backup(facts: ClusterFacts) -> Iterator[str]:
    """Of a cluster of several servers: one on one machine has what that machine's backup has."""
    bus = facts.bus
    now_s = facts.gateway.now_s if facts.gateway is not None else 0.0
    journal = next((one for one in bus.streams if one.name == JOURNAL.name), None) if bus else None
    if bus is None or journal is None or bus.size < 2:
        return
    done_s = int(journal.notes.get(LAST_BACKUP, 0)) / 1000
    if not done_s:
        yield "no backup of this cluster has ever been made"
    elif now_s - done_s > BACKUP_DAYS * _DAY_S:
        yield f"the last backup was made {moment(done_s)}"


def server_behind(bus: BusFacts) -> Iterator[str]:
    """Servers that answer and have not caught up; `server_down` tells of those that do not."""
    behind: dict[str, list[str]] = defaultdict(list)
    stopped = stopped_storing(bus)
    for stream in bus.streams:
        for name in stream.behind:
            if name not in stopped:
                behind[name].append(stream.name)
    for name, streams in sorted(behind.items()):
        yield f"NATS server {name} answers, and has not caught up with {listed(streams)}"


def under_replicated(bus: BusFacts) -> Iterator[str]:
    """Copies that lack though their servers have caught up; `server_down` and `server_behind` tell
    of the others.
    """
    few = []
    for stream in bus.streams:
        wanted = max(stream.declared, COPIES if stream.clustered else 1)
        copies = stream.current + len(stream.offline) + len(stream.behind)
        if copies < wanted:
            few.append(f"{stream.name} ({copies} of {wanted})")
    if few:
        yield f"fewer copies than there should be: {listed(few)}"


def refused_key(bus: BusFacts) -> Iterator[str]:
    yield from some(bus.refused)
    for key in bus.keys:
        if key.refused and key.refused != bus.refused:
            yield key.refused


def missing_permission(bus: BusFacts) -> Iterator[str]:
    for key in bus.keys:
        user = login_of(key.label)
        if user is None or key.refused or key.unknown:
            continue
        wanted = permissions(user)
        sides = (
            ("publish to", wanted.publish, key.publish),
            ("subscribe to", wanted.subscribe, key.subscribe),
        )
        for what, subjects, allowed in sides:
            lacking = [subject for subject in subjects if not _may(subject, allowed, key)]
            if lacking:
                yield f"{key.label} may not {what} {listed(lacking)}"


def _may(subject: str, allowed: tuple[str, ...] | None, key: KeyFacts) -> bool:
    if any(covers(pattern, subject) for pattern in key.denied):
        return False
    return allowed is None or any(covers(pattern, subject) for pattern in allowed)


def covers(pattern: str, subject: str) -> bool:
    """Whether a NATS pattern matches every subject that ``subject``, maybe a pattern itself, stands
    for.
    """
    wide = pattern.split(".")
    narrow = subject.split(".")
    for at, token in enumerate(wide):
        if token == ">":
            return len(narrow) > at
        if at >= len(narrow) or narrow[at] == ">" or token not in ("*", narrow[at]):
            return False
    return len(wide) == len(narrow)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────


def _processes(bus: BusFacts | None) -> list[ConnectedProcess]:
    """Those of the account, and workers, which have accounts of their own."""
    every = bus.processes if bus is not None else ()
    account = bus.account if bus is not None else ""
    return [one for one in every if account in ("", one.account) or one.service == "worker"]


def wrong_clock(facts: ClusterFacts) -> Iterator[str]:
    gateway = facts.gateway
    bus = facts.bus
    here = (
        [(f"NATS server {server.name}", server.clock_ahead_s) for server in bus.servers]
        if bus is not None
        else []
    )
    if gateway is not None and gateway.clock_ahead_s:
        here.insert(0, ("the gateway", gateway.clock_ahead_s))
    yield from _differing(here, "this machine's", CLOCK_S)
    processes = (gateway.processes if gateway is not None else None) or ()
    others = [
        (f"{process}", process.clock_ahead_s)
        for process in processes
        if process.clock_ahead_s is not None
    ]
    yield from _differing(others, "the asked gateway's", CLOCK_S)
    recorded = [
        (f"{process}", process.times_ahead_s)
        for process in processes
        if process.times_ahead_s is not None
    ]
    for name, ahead_s in recorded:
        if abs(ahead_s) > CLOCK_S:
            yield (
                f"the clock of {name} was set, or was wrong: times of records are {abs(ahead_s):.1f} s "
                f"{'ahead of' if ahead_s > 0 else 'behind'} it"
            )
    workers = (gateway.workers if gateway is not None else None) or ()
    off_s = recorded[0][1] if recorded else 0.0
    hosts = [
        (f"worker {worker.id}", worker.clock_ahead_ms / 1000 + off_s)
        for worker in workers
        if worker.state != "lost"
    ]
    yield from _differing(hosts, "the state service's", MAX_CLOCK_SKEW_S)


def _differing(clocks: Iterable[tuple[str, float]], than: str, behind_s: float) -> Iterator[str]:
    for name, ahead_s in clocks:
        if not -behind_s <= ahead_s <= CLOCK_S:
            yield f"the clock of {name} is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} {than}"


def version_skew(facts: ClusterFacts) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    found[facts.version].append("this command")
    if facts.gateway is not None and facts.gateway.version:
        found[facts.gateway.version].append("the gateway")
    for worker in (facts.gateway.workers if facts.gateway is not None else None) or ():
        if worker.version and worker.state != "lost":
            found[worker.version].append(f"worker {worker.id}")
    for process in _processes(facts.bus):
        if process.service != "worker":
            found[process.version].append(f"{process.service} on {process.host}")
    if len(found) > 1:
        yield "; ".join(
            f"{version}: {listed(dict.fromkeys(names))}" for version, names in sorted(found.items())
        )


def old_server(bus: BusFacts) -> Iterator[str]:
    versions = {server.version for server in bus.servers if server.version}
    if len(versions) > 1:
        yield f"the NATS servers are of {len(versions)} versions: {', '.join(sorted(versions))}"


def two_clusters(bus: BusFacts) -> Iterator[str]:
    clusters: dict[str, list[str]] = defaultdict(list)
    for process in _processes(bus):
        clusters[process.cluster].append(f"{process.service} on {process.host}")
    if len(clusters) > 1:
        each = (
            f"{name} ({listed(dict.fromkeys(found))})" for name, found in sorted(clusters.items())
        )
        yield f"processes of {len(clusters)} clusters share the account: {'; '.join(each)}"
    hosts: dict[str, list[str]] = defaultdict(list)
    for process in _processes(bus):
        if process.service == "worker" and process.account.startswith("worker-"):
            hosts[process.account.removeprefix("worker-")].append(process.host)
    for worker, addresses in sorted(hosts.items()):
        if len(addresses) > 1:
            yield f"{len(addresses)} processes are worker {worker}: on {listed(addresses)}"


def unnamed_cluster(facts: ClusterFacts) -> Iterator[str]:
    """Slices of a cloud carry the name of their cluster, and every cluster has this one at first."""
    pools = facts.gateway.pools if facts.gateway is not None else ()
    labelled = [pool.name for pool in pools if pool.provider != "process"]
    is_unnamed = any(one.cluster == FIRST_CLUSTER_NAME for one in _processes(facts.bus))
    if labelled and not facts.data and is_unnamed:
        yield (
            f"slices of {listed(labelled)} are labelled {FIRST_CLUSTER_NAME}, "
            "the name of every cluster that has no other"
        )


def listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more
