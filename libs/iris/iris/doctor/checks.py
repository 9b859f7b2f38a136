"""The checks of `iris doctor`: a table of judgements over collected facts. Pure.

A check finds problems and says nothing when there is none. What is unknown is no problem; `notes` lists it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from iris.doctor.facts import ClusterFacts, GatewayFacts
from iris_bus.bus_facts import BusFacts, ConnectedProcess, KeyFacts
from iris_bus.declarations import COPIES
from iris_core.messages.processes import NO_TOKEN_FILE
from iris_core.roles import login_of, permissions
from iris_core.subjects import STREAMS

CLOCK_S = 3.0
"""A clock may differ by so much."""
MAX_CLOCK_SKEW_S = 10.0
"""A host may seem behind by so much, because its heartbeat arrived late."""
FREE_BYTES = 1 << 30
_NEARLY_FULL = 0.95
_NAMES = 5
_NO_GATEWAY = "none is known; --url or IRIS_URL says where it is, and `iris up` starts a local one"
_FULL_WORDS = ("write error", "no space", "insufficient storage")


class Finding(msgspec.Struct, frozen=True):
    """One misconfiguration: what is wrong, why it matters, what to do, and the section of the manual."""

    code: str
    what: str
    why: str
    do: str
    see: str


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table; ``judge`` yields a sentence for each thing that is wrong."""

    code: str
    judge: Callable[[ClusterFacts], Iterable[str]]
    why: str
    do: str
    see: str


def problems(facts: ClusterFacts) -> list[Finding]:
    """Everything that is wrong, in the order of the table."""
    return [
        Finding(check.code, what, check.why, check.do, check.see) for check in CHECKS for what in check.judge(facts)
    ]


def notes(facts: ClusterFacts) -> list[str]:
    """What could not be checked, and what is no misconfiguration but worth a look."""
    return [*_of_unknown_gateway(facts), *_of_unknown_bus(facts.bus)]


def _of_unknown_gateway(facts: ClusterFacts) -> Iterator[str]:
    if facts.gateway is None:
        if facts.bus is not None:
            yield f"no gateway was checked: {_NO_GATEWAY}"
        return
    if facts.gateway.failed:
        yield f"the workers were not checked: {facts.gateway.failed}"
    if facts.gateway.dead_letters:
        yield f"{facts.gateway.dead_letters} commands were set aside: see docs/troubleshooting.md#dead-letters"


def _of_unknown_bus(bus: BusFacts | None) -> Iterator[str]:
    if bus is None:
        yield "the NATS servers were not checked: --nats URL with --config FILE says how to reach them"
        return
    yield from bus.not_asked
    yield from (f"the permissions of {key.label} were not checked: {key.unknown}" for key in bus.keys if key.unknown)


def _of_gateway(judge: Callable[[GatewayFacts], Iterable[str]]) -> Callable[[ClusterFacts], Iterable[str]]:
    return lambda facts: judge(facts.gateway) if facts.gateway is not None else ()


def _of_bus(judge: Callable[[BusFacts], Iterable[str]]) -> Callable[[ClusterFacts], Iterable[str]]:
    return lambda facts: judge(facts.bus) if facts.bus is not None else ()


def _some(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


# ── the gateway ─────────────────────────────────────────────────────────────────────────────────────────────────


def _unreachable(facts: ClusterFacts) -> Iterator[str]:
    if facts.gateway is not None:
        yield from _some(facts.gateway.error)
    elif facts.bus is None:
        yield f"no gateway can be checked: {_NO_GATEWAY}"


def _wrong_token(gateway: GatewayFacts) -> Iterator[str]:
    if gateway.refused and gateway.token:
        yield f"the gateway at {gateway.url} does not accept the token from {gateway.token}: {gateway.refused}"
    elif gateway.refused:
        yield f"the gateway at {gateway.url} wants a token, and none was given: {gateway.refused}"


def _token_files(gateway: GatewayFacts) -> Iterator[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, tokens in gateway.tokens.items():
        found[tokens].append(name + (" without a token_file" if tokens == NO_TOKEN_FILE else ""))
    if len(found) > 1:
        yield f"{len(gateway.tokens)} gateways accept different tokens: {'; '.join(map(_listed, found.values()))}"


def _no_healthy_worker(gateway: GatewayFacts) -> Iterator[str]:
    if gateway.workers is None or any(worker.state == "healthy" for worker in gateway.workers):
        return
    count = len(gateway.workers)
    yield f"none of {count} workers is healthy" if count else "no worker has registered"


def _degraded_worker(gateway: GatewayFacts) -> Iterator[str]:
    for worker in gateway.workers or ():
        if worker.state == "degraded":
            yield f"worker {worker.id} is degraded: {worker.detail}"


def _lost_worker(gateway: GatewayFacts) -> Iterator[str]:
    workers = gateway.workers or ()
    lost = [worker.id for worker in workers if worker.state == "lost"]
    if lost and any(worker.state == "healthy" for worker in workers):
        yield f"{len(lost)} of {len(workers)} hosts {'is' if len(lost) == 1 else 'are'} LOST: {_listed(lost)}"


def _warning_of_worker(code: str) -> Callable[[GatewayFacts], Iterator[str]]:
    """What workers find out about themselves, under that code."""

    def judge(gateway: GatewayFacts) -> Iterator[str]:
        for worker in gateway.workers or ():
            if worker.state != "lost" and code in worker.warnings:
                yield f"worker {worker.id}: {worker.warnings[code]}"

    return judge


# ── disks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _full_disk(facts: ClusterFacts) -> Iterator[str]:
    if facts.data and facts.free_bytes < FREE_BYTES:
        yield f"{facts.free_bytes >> 20} MiB are free for {facts.data}"
    for server in facts.bus.servers if facts.bus is not None else ():
        if any(words in server.error for words in _FULL_WORDS):
            yield f"NATS server {server.name} cannot store: {server.error}"
        elif server.max_bytes and server.stored_bytes > _NEARLY_FULL * server.max_bytes:
            yield f"the store of NATS server {server.name} holds {server.stored_bytes} of {server.max_bytes} bytes"


# ── NATS servers ────────────────────────────────────────────────────────────────────────────────────────────────


def _no_jetstream(bus: BusFacts) -> Iterator[str]:
    names = [server.name for server in bus.servers if not server.jetstream]
    if not bus.jetstream:
        yield f"the NATS server at {bus.url} stores nothing: JetStream is off, there or for the account"
    elif names and len(names) < len(bus.servers):
        yield f"JetStream is off on {_listed(names)}"


def _memory_storage(bus: BusFacts) -> Iterator[str]:
    names = [stream.name for stream in bus.streams if stream.storage != "file"]
    if names:
        yield f"{_listed(names)} {'is' if len(names) == 1 else 'are'} kept in the memory of the NATS servers"


def _no_sync(bus: BusFacts) -> Iterator[str]:
    for server in bus.servers:
        if server.jetstream and not server.sync_always:
            often = f"every {server.sync_s:g} s" if server.sync_s else "now and then"
            yield f"NATS server {server.name} syncs its store to disk {often}, not before it confirms"


def _unhealthy_server(bus: BusFacts) -> Iterator[str]:
    for server in bus.servers:
        if server.error and not any(words in server.error for words in _FULL_WORDS):
            yield f"NATS server {server.name} is not healthy: {server.error}"


def _server_down(bus: BusFacts) -> Iterator[str]:
    offline = sorted({name for stream in bus.streams for name in stream.offline})
    down = bus.size - len(bus.servers) if bus.servers else 0
    if down > 0:
        named = f": {_listed(offline)}" if offline else ""
        yield f"{down} of {bus.size} NATS servers {'does' if down == 1 else 'do'} not answer{named}"
    elif offline:
        yield f"{_listed(offline)} of the NATS servers {'does' if len(offline) == 1 else 'do'} not answer the others"


def _small_store(bus: BusFacts) -> Iterator[str]:
    """Servers whose store has no room for what streams may hold, which the server reserves when a stream is made."""
    wanted = sum(stream.max_bytes for stream in STREAMS)
    found = {stream.name for stream in bus.streams}
    missing = [stream.name for stream in STREAMS if stream.max_bytes and stream.name not in found]
    for server in bus.servers:
        if missing and found and 0 < server.max_bytes < wanted:
            yield (
                f"NATS server {server.name} may store {server.max_bytes} bytes, and streams reserve up to {wanted}: "
                f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not there"
            )


def _no_scheduler(facts: ClusterFacts) -> Iterator[str]:
    """None answers the gateway, or none is connected though a state service is."""
    services = {process.service for process in _processes(facts.bus)}
    if facts.gateway is not None and facts.gateway.unscheduled:
        yield facts.gateway.unscheduled
    elif "state" in services and "scheduler" not in services:
        yield "no scheduler is connected to the NATS servers"


def _no_standby(bus: BusFacts) -> Iterator[str]:
    states = [process.host for process in _processes(bus) if process.service == "state"]
    if bus.size > 1 and len(states) == 1:
        yield f"there are {bus.size} NATS servers and one state service, on {states[0]}"


def _under_replicated(bus: BusFacts) -> Iterator[str]:
    """Copies that lack though their servers answer; `_server_down` tells of those that do not."""
    wanted = {stream: max(stream.declared, COPIES if stream.clustered else 1) for stream in bus.streams}
    known = ((stream, stream.current + len(stream.offline), most) for stream, most in wanted.items())
    few = [f"{stream.name} ({copies} of {most})" for stream, copies, most in known if copies < most]
    if few:
        yield f"fewer copies than there should be: {_listed(few)}"


def _refused_key(bus: BusFacts) -> Iterator[str]:
    yield from _some(bus.refused)
    for key in bus.keys:
        if key.refused and key.refused != bus.refused:
            yield key.refused


def _missing_permission(bus: BusFacts) -> Iterator[str]:
    for key in bus.keys:
        user = login_of(key.label)
        if user is None or key.refused or key.unknown:
            continue
        wanted = permissions(user)
        sides = (("publish to", wanted.publish, key.publish), ("subscribe to", wanted.subscribe, key.subscribe))
        for what, subjects, allowed in sides:
            lacking = [subject for subject in subjects if not _may(subject, allowed, key)]
            if lacking:
                yield f"{key.label} may not {what} {_listed(lacking)}"


def _may(subject: str, allowed: tuple[str, ...] | None, key: KeyFacts) -> bool:
    if any(covers(pattern, subject) for pattern in key.denied):
        return False
    return allowed is None or any(covers(pattern, subject) for pattern in allowed)


def covers(pattern: str, subject: str) -> bool:
    """Whether a NATS pattern matches every subject that ``subject``, maybe a pattern itself, stands for."""
    wide, narrow = pattern.split("."), subject.split(".")
    for at, token in enumerate(wide):
        if token == ">":
            return len(narrow) > at
        if at >= len(narrow) or narrow[at] == ">" or token not in ("*", narrow[at]):
            return False
    return len(wide) == len(narrow)


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _processes(bus: BusFacts | None) -> list[ConnectedProcess]:
    """Those of the account, and workers, which have accounts of their own."""
    every = bus.processes if bus is not None else ()
    account = bus.account if bus is not None else ""
    return [one for one in every if account in ("", one.account) or one.service == "worker"]


def _wrong_clock(facts: ClusterFacts) -> Iterator[str]:
    gateway, bus = facts.gateway, facts.bus
    here = [(f"NATS server {server.name}", server.clock_ahead_s) for server in bus.servers] if bus is not None else []
    if gateway is not None and gateway.clock_ahead_s:
        here.insert(0, ("the gateway", gateway.clock_ahead_s))
    yield from _differing(here, "this machine's", CLOCK_S)
    workers = (gateway.workers if gateway is not None else None) or ()
    hosts = [(f"worker {worker.id}", worker.clock_ahead_ms / 1000) for worker in workers if worker.state != "lost"]
    yield from _differing(hosts, "the state service's", MAX_CLOCK_SKEW_S)


def _differing(clocks: Iterable[tuple[str, float]], than: str, behind_s: float) -> Iterator[str]:
    for name, ahead_s in clocks:
        if not -behind_s <= ahead_s <= CLOCK_S:
            yield f"the clock of {name} is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} {than}"


def _version_skew(facts: ClusterFacts) -> Iterator[str]:
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
        yield "; ".join(f"{version}: {_listed(dict.fromkeys(names))}" for version, names in sorted(found.items()))


def _old_server(bus: BusFacts) -> Iterator[str]:
    versions = {server.version for server in bus.servers if server.version}
    if len(versions) > 1:
        yield f"the NATS servers are of {len(versions)} versions: {', '.join(sorted(versions))}"


def _two_clusters(bus: BusFacts) -> Iterator[str]:
    clusters: dict[str, list[str]] = defaultdict(list)
    for process in _processes(bus):
        clusters[process.cluster].append(f"{process.service} on {process.host}")
    if len(clusters) > 1:
        each = (f"{name} ({_listed(dict.fromkeys(found))})" for name, found in sorted(clusters.items()))
        yield f"processes of {len(clusters)} clusters share the account: {'; '.join(each)}"
    hosts: dict[str, list[str]] = defaultdict(list)
    for process in _processes(bus):
        if process.service == "worker" and process.account.startswith("worker-"):
            hosts[process.account.removeprefix("worker-")].append(process.host)
    for worker, addresses in sorted(hosts.items()):
        if len(addresses) > 1:
            yield f"{len(addresses)} processes are worker {worker}: on {_listed(addresses)}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more


CHECKS = (
    Check(
        "damaged_data",
        lambda facts: _some(facts.damage.strip()),
        "a state service does not start on stored data that differs from what was written",
        "run the command that the message names",
        "docs/troubleshooting.md#the-journal-is-damaged-at-",
    ),
    Check(
        "records_lost",
        _of_bus(lambda bus: [stream.lost for stream in bus.streams if stream.lost]),
        "no state service leads, so that no worker is told to stop what it runs",
        "stop the state services, restore a backup onto these servers, start them again",
        "docs/disaster-recovery.md#restore",
    ),
    Check(
        "gateway_unreachable",
        _unreachable,
        "nothing can be submitted or looked at",
        "check the address, and that the gateway runs there",
        "docs/troubleshooting.md#the-command-line-cannot-reach-the-gateway-exit-code-8",
    ),
    Check(
        "wrong_token",
        _of_gateway(_wrong_token),
        "the gateway refuses every command of this user",
        "set IRIS_TOKEN, or the token of the context, to one whose SHA-256 is in the gateway's token_file",
        "docs/troubleshooting.md#the-gateway-does-not-accept-the-token",
    ),
    Check(
        "different_tokens",
        _of_gateway(_token_files),
        "a token that one gateway accepts is refused by another, and one that was revoked may still be accepted",
        "give every gateway the same token_file; each reads a changed one within seconds",
        "docs/troubleshooting.md#the-gateway-does-not-accept-the-token",
    ),
    Check(
        "not_ready",
        _of_gateway(lambda gateway: _some(gateway.not_ready)),
        "submissions are answered 503 and nothing is placed",
        "look at the log of the state service, and at the problems with NATS listed here",
        "docs/troubleshooting.md#a-submission-is-answered-with-503",
    ),
    Check(
        "no_scheduler",
        _no_scheduler,
        "jobs are taken and none is placed",
        "start a scheduler, or look at the log of the one that there is",
        "docs/troubleshooting.md#irisschedulerstale",
    ),
    Check(
        "nats_unreachable",
        _of_bus(lambda bus: _some(bus.error)),
        "every service waits for NATS: nothing is admitted, placed or recorded",
        "start the servers, or correct the address, the certificate or the limit that the message names",
        "docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "key_refused",
        _of_bus(_refused_key),
        "the process with that key cannot connect",
        "have the server read the accounts.conf that was written with the key",
        "docs/troubleshooting.md#a-key-lacks-permissions",
    ),
    Check(
        "missing_permission",
        _of_bus(_missing_permission),
        "what that process does on these subjects fails, though it is connected",
        "run `iris admin nats-config` of this release again and have each server read accounts.conf twice",
        "docs/troubleshooting.md#a-key-lacks-permissions",
    ),
    Check(
        "no_jetstream",
        _of_bus(_no_jetstream),
        "the journal cannot be stored, so no state service can lead",
        "add a `jetstream` block to the server's configuration, and `jetstream: enabled` to the account IRIS",
        "docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "memory_storage",
        _of_bus(_memory_storage),
        "it is lost, with every job in it, when the servers stop",
        "back up, stop the services, delete the stream, and restore: a stream's storage cannot be changed",
        "docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "no_sync",
        _of_bus(_no_sync),
        "a power loss loses submissions that were acknowledged",
        "set `sync_interval: always` in the server's `jetstream` block and restart it",
        "docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "server_down",
        _of_bus(_server_down),
        "three servers go on without one of them, and store nothing without two",
        "start it again; it fetches what it has missed",
        "docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "no_standby",
        _of_bus(_no_standby),
        "when the host of the state service is lost, nothing is placed until somebody starts another",
        "start a second state service on another host",
        "docs/troubleshooting.md#irisnostandby",
    ),
    Check(
        "store_too_small",
        _of_bus(_small_store),
        "a state service cannot make its streams (JetStream error 10047) and starts again and again",
        "a larger disk or `max_file_store`, or smaller limits in [nats]: events_bytes, logs_bytes and so on",
        "docs/troubleshooting.md#disk-full",
    ),
    Check(
        "under_replicated",
        _of_bus(_under_replicated),
        "what has one copy is gone with its server, and cannot be read while that server is away",
        "start the servers that are down; run `iris admin streams --apply` with [nats] replicas = 3",
        "docs/troubleshooting.md#irisstoreunderreplicated",
    ),
    Check(
        "disk_full",
        _full_disk,
        "NATS refuses to store when the disk is full, and then nothing is admitted or recorded",
        "free disk space; restart a NATS server of your own after a failed write",
        "docs/troubleshooting.md#disk-full",
    ),
    Check(
        "server_unhealthy",
        _of_bus(_unhealthy_server),
        "streams on it may not be readable or writable",
        "look at the log of that server",
        "docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "clock_off",
        _wrong_clock,
        "times that are shown are wrong, `--since` and certificates fail; deadlines use other clocks",
        "synchronise the clocks of all machines (chrony, systemd-timesyncd)",
        "docs/troubleshooting.md#a-clock-is-off",
    ),
    Check(
        "version_skew",
        _version_skew,
        "an older process may not read what a newer one sends",
        "finish the upgrade",
        "docs/troubleshooting.md#irisversionskew",
    ),
    Check(
        "server_version_skew",
        _of_bus(_old_server),
        "servers of different versions are tested together only during an upgrade",
        "finish the upgrade of the NATS servers",
        "docs/troubleshooting.md#irisversionskew",
    ),
    Check(
        "two_clusters",
        _of_bus(_two_clusters),
        "they follow one journal: one of them leads, and the jobs and workers of both mix",
        "give each cluster an account, or servers, of its own, and each worker its own id",
        "docs/troubleshooting.md#two-clusters-share-an-account",
    ),
    Check(
        "no_healthy_worker",
        _of_gateway(_no_healthy_worker),
        "nothing can be placed",
        "start a worker, or see why those there are get no work: `iris worker list`",
        "docs/troubleshooting.md#a-worker-is-lost",
    ),
    Check(
        "worker_lost",
        _of_gateway(_lost_worker),
        "its tasks were given to others, and its resources are missing",
        "start its worker again; of a host that does not come back: `iris worker forget HOST`",
        "docs/troubleshooting.md#a-worker-is-lost",
    ),
    Check(
        "gateway_dead",
        _of_gateway(_warning_of_worker("gateway_dead")),
        "tasks there cannot submit child jobs nor read anything",
        "set gateway_url of [worker] to the address at which that host reaches a gateway",
        "docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "overdeclared",
        _of_gateway(_warning_of_worker("overdeclared")),
        "more tasks are placed there than fit: they are slow, or are killed for lack of memory",
        "correct what [worker] declares, or leave it out: then the worker finds out",
        "docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "loopback_address",
        _of_gateway(_warning_of_worker("loopback_address")),
        "routes and gangs on it cannot be reached from other hosts",
        "set address of [worker] to one at which other hosts reach it, or leave it out",
        "docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "unscoped_sockets",
        _of_gateway(_warning_of_worker("unscoped_sockets")),
        "a task may pass files it has open to another user's task there, if that takes them",
        'a kernel that scopes them (Linux 6.12 with Landlock), or abstract_sockets of [worker]: "network" or "shared"',
        "docs/security.md#tasks",
    ),
    Check(
        "readable_keys",
        lambda facts: _some((facts.readable and f"others may read {_listed(facts.readable)}") or ""),
        "whoever logs in on this host can act as that service or user",
        "chmod 600 these files",
        "docs/security.md",
    ),
    Check(
        "worker_degraded",
        _of_gateway(_degraded_worker),
        "it gets no new tasks",
        "solve what it reports",
        "docs/troubleshooting.md#a-worker-is-degraded",
    ),
)
"""Every check. A section of the manual stands behind each."""
