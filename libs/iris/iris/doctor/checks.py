"""The checks of `iris doctor`: a table of judgements over collected facts. Pure.

A check finds problems and says nothing when there is none. What is unknown is no problem; `notes`
lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from iris.doctor import judgements as judge
from iris.doctor.facts import ClusterFacts, GatewayFacts
from iris_bus.servers.bus_facts import BusFacts

_SLOW_MOVES = (
    "a task that starts there after a rest takes 5 to 18 ms longer; mount it with that option if that matters more than"
    " slower forks and exits of the whole host: see docs/hosts.md#slow-starts-after-a-rest"
)


class Finding(msgspec.Struct, frozen=True):
    """One misconfiguration: what is wrong, why it matters, what to do, and the section of the
    manual.
    """

    code: str
    what: str
    why: str
    do: str
    see: str


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table; ``finds`` yields a sentence for each thing that is wrong."""

    code: str
    finds: Callable[[ClusterFacts], Iterable[str]]
    why: str
    do: str
    see: str


def problems(facts: ClusterFacts) -> list[Finding]:
    """Everything that is wrong, in the order of the table."""
    return [
        Finding(check.code, what, check.why, check.do, see=check.see)
        for check in CHECKS
        for what in check.finds(facts)
    ]


def notes(facts: ClusterFacts) -> list[str]:
    """What could not be checked, and what is worth a look without being a misconfiguration."""
    return [
        *_of_unknown_gateway(facts),
        *_of_unknown_bus(facts.bus),
        *_of_unknown_targets(facts),
    ]


def _of_unknown_gateway(facts: ClusterFacts) -> Iterator[str]:
    if facts.gateway is None:
        if facts.bus is not None:
            yield f"no gateway was checked: {judge.NO_GATEWAY}"
        return
    if facts.gateway.failed:
        yield f"the workers were not checked: {facts.gateway.failed}"
    if facts.gateway.dead_letters:
        yield f"{facts.gateway.dead_letters} commands were set aside: see docs/troubleshooting.md#dead-letters"
    for what, names in judge.warnings_alike(facts.gateway, "slow_group_moves").items():
        yield f"{judge.listed(names)}: {what}: {_SLOW_MOVES}"


def _of_unknown_bus(bus: BusFacts | None) -> Iterator[str]:
    if bus is None:
        yield "the NATS servers were not checked: --nats URL with --config FILE says how to reach them"
        return
    yield from bus.not_asked
    yield from (
        f"the permissions of {key.label} were not checked: {key.unknown}"
        for key in bus.keys
        if key.unknown
    )


def _of_unknown_targets(facts: ClusterFacts) -> Iterator[str]:
    is_unknown = facts.bus is None or facts.bus.has_targets is None
    if is_unknown and judge.lacks_notifier(facts):
        yield "no notifier answers: whether there are targets for messages, only the NATS servers say"


def _of_gateway(
    finds: Callable[[GatewayFacts], Iterable[str]],
) -> Callable[[ClusterFacts], Iterable[str]]:
    return lambda facts: finds(facts.gateway) if facts.gateway is not None else ()


def _of_bus(finds: Callable[[BusFacts], Iterable[str]]) -> Callable[[ClusterFacts], Iterable[str]]:
    return lambda facts: finds(facts.bus) if facts.bus is not None else ()


CHECKS = (
    Check(
        "damaged_data",
        lambda facts: judge.some(facts.damage.strip()),
        "a state service does not start on stored data that differs from what was written",
        "run the command that the message names",
        see="docs/troubleshooting.md#the-journal-is-damaged-at-",
    ),
    Check(
        "records_lost",
        _of_bus(lambda bus: [stream.lost for stream in bus.streams if stream.lost]),
        "no state service leads, so that no worker is told to stop what it runs",
        "stop the state services, restore a backup onto these servers, start them again",
        see="docs/disaster-recovery.md#restore",
    ),
    Check(
        "gateway_unreachable",
        judge.unreachable,
        "nothing can be submitted or looked at",
        "check the address, and that the gateway runs there",
        see="docs/troubleshooting.md#the-command-line-cannot-reach-the-gateway-exit-code-8",
    ),
    Check(
        "wrong_token",
        _of_gateway(judge.wrong_token),
        "the gateway refuses every command of this user",
        "set IRIS_TOKEN, or the token of the context, to one whose SHA-256 is in the gateway's token_file",
        see="docs/troubleshooting.md#the-gateway-does-not-accept-the-token",
    ),
    Check(
        "different_tokens",
        _of_gateway(judge.token_files),
        "a token that one gateway accepts is refused by another, and one that was revoked may still be accepted",
        "give every gateway the same token_file; each reads a changed one within seconds",
        see="docs/troubleshooting.md#the-gateway-does-not-accept-the-token",
    ),
    Check(
        "not_ready",
        _of_gateway(lambda gateway: judge.some(gateway.not_ready)),
        "submissions are answered 503 and nothing is placed",
        "look at the log of the state service, and at the problems with NATS listed here",
        see="docs/troubleshooting.md#a-submission-is-answered-with-503",
    ),
    Check(
        "no_scheduler",
        judge.no_scheduler,
        "jobs are taken and none is placed",
        "start a scheduler, or look at the log of the one that there is",
        see="docs/troubleshooting.md#irisnoscheduler",
    ),
    Check(
        "nats_unreachable",
        _of_bus(lambda bus: judge.some(bus.error)),
        "every service waits for NATS: nothing is admitted, placed or recorded",
        "start the servers, or correct the address, the certificate or the limit that the message names",
        see="docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "key_refused",
        _of_bus(judge.refused_key),
        "the process with that key cannot connect",
        "have the server read the accounts.conf that was written with the key",
        see="docs/troubleshooting.md#a-key-lacks-permissions",
    ),
    Check(
        "missing_permission",
        _of_bus(judge.missing_permission),
        "what that process does on these subjects fails, though it is connected",
        "run `iris admin nats-config` of this release again and have each server read accounts.conf twice",
        see="docs/troubleshooting.md#a-key-lacks-permissions",
    ),
    Check(
        "no_jetstream",
        _of_bus(judge.no_jetstream),
        "the journal cannot be stored, so no state service can lead",
        "add a `jetstream` block to the server's configuration, and `jetstream: enabled` to the account IRIS",
        see="docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "memory_storage",
        _of_bus(judge.memory_storage),
        "it is lost, with every job in it, when the servers stop",
        "back up, stop the services, delete the stream, and restore: a stream's storage cannot be changed",
        see="docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "no_sync",
        _of_bus(judge.no_sync),
        "a power loss loses submissions that were acknowledged",
        "set `sync_interval: always` in the server's `jetstream` block and restart it",
        see="docs/troubleshooting.md#a-nats-server-is-not-durable",
    ),
    Check(
        "server_down",
        _of_bus(judge.server_down),
        "three servers go on without one of them, and store nothing without two",
        "start it again; it fetches what it has missed",
        see="docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "no_standby",
        judge.no_standby,
        "when the host of the state service is lost, nothing is placed until somebody starts another",
        "start a second state service on another host",
        see="docs/troubleshooting.md#irisnostandby",
    ),
    Check(
        "no_backup",
        judge.no_backup,
        "what all servers lose together, or what somebody deletes, cannot be brought back",
        "run `iris admin backup` now, and then every day from a timer",
        see="docs/troubleshooting.md#irisbackupold",
    ),
    Check(
        "store_too_small",
        _of_bus(judge.small_store),
        "a state service cannot make its streams (JetStream error 10047) and starts again and again",
        "a larger disk or `max_file_store`, or smaller limits in [nats]: events_bytes, logs_bytes and so on",
        see="docs/troubleshooting.md#disk-full",
    ),
    Check(
        "server_behind",
        _of_bus(judge.server_behind),
        "when another server is lost now, what this one lacks cannot be read or written",
        "wait until it has fetched what it has missed; when that lasts, look at its disk and its network",
        see="docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "under_replicated",
        _of_bus(judge.under_replicated),
        "what has one copy is gone with its server, and cannot be read while that server is away",
        "run `iris admin streams --apply` with [nats] replicas = 3, once every server is up: a copy is made on none else",
        see="docs/troubleshooting.md#irisstoreunderreplicated",
    ),
    Check(
        "disk_full",
        judge.full_disk,
        "NATS refuses to store when the disk is full, and then nothing is admitted or recorded",
        "free disk space; restart a NATS server of your own after a failed write",
        see="docs/troubleshooting.md#disk-full",
    ),
    Check(
        "server_unhealthy",
        _of_bus(judge.unhealthy_server),
        "streams on it may not be readable or writable",
        "look at the log of that server",
        see="docs/troubleshooting.md#a-nats-server-cannot-be-reached",
    ),
    Check(
        "clock_off",
        judge.wrong_clock,
        "times that are shown are wrong, `--since` and certificates fail; deadlines use other clocks",
        "synchronise the clocks of all machines (chrony, systemd-timesyncd)",
        see="docs/troubleshooting.md#a-clock-is-off",
    ),
    Check(
        "certificate_expires",
        judge.certificate_expires,
        "whoever connects there refuses it from then on",
        "put a new certificate and key in place: gateways and proxies read changed files within seconds, a NATS server"
        " at `nats-server --signal reload`, and a client's (tls_cert of [nats]) is read when its service starts",
        see="docs/troubleshooting.md#iriscertificateexpires",
    ),
    Check(
        "version_skew",
        judge.version_skew,
        "an older process may not read what a newer one sends",
        "finish the upgrade",
        see="docs/troubleshooting.md#irisversionskew",
    ),
    Check(
        "server_version_skew",
        _of_bus(judge.old_server),
        "servers of different versions are tested together only during an upgrade",
        "finish the upgrade of the NATS servers",
        see="docs/troubleshooting.md#irisversionskew",
    ),
    Check(
        "two_clusters",
        _of_bus(judge.two_clusters),
        "they follow one journal: one of them leads, and the jobs and workers of both mix",
        "give each cluster an account, or servers, of its own, and each worker its own id",
        see="docs/troubleshooting.md#two-clusters-share-an-account",
    ),
    Check(
        "unnamed_cluster",
        judge.unnamed_cluster,
        "another cluster of that name in the same cloud account would take them for its own, and delete them",
        "set cluster of [run] for all services while no pool has slices",
        see="docs/howto/fleet.md#on-machines-of-your-own",
    ),
    Check(
        "no_healthy_worker",
        _of_gateway(judge.no_healthy_worker),
        "nothing can be placed",
        "start a worker, or see why those there are get no work: `iris worker list`",
        see="docs/troubleshooting.md#a-worker-is-lost",
    ),
    Check(
        "no_proxy",
        _of_gateway(judge.no_proxy),
        "nobody reaches a deployment: `/d/NAME/` is answered by a proxy only",
        "start a proxy: `iris server proxy`",
        see="docs/troubleshooting.md#a-deployment-answers-503-or-502",
    ),
    Check(
        "no_provisioner",
        _of_gateway(judge.no_provisioner),
        "no slice of a pool is made or deleted",
        "start a provisioner: `iris server provisioner`",
        see="docs/howto/fleet.md#when-a-pool-does-not-grow",
    ),
    Check(
        "no_notifier",
        judge.no_notifier,
        "nobody is told of jobs until one runs, nor ever of what happened before the oldest event that is kept",
        "start a notifier: `iris server notifier`",
        see="docs/troubleshooting.md#nobody-is-told-of-jobs",
    ),
    Check(
        "pool_halted",
        _of_gateway(judge.halted_pool),
        "it makes nothing until somebody has looked",
        "solve what it says (credentials, a quota, a wrong option, hosts that are lost), then `iris pool resume POOL`",
        see="docs/troubleshooting.md#irispoolpaused",
    ),
    Check(
        "pool_warning",
        _of_gateway(judge.warned_pool),
        "the pool makes fewer slices than it may",
        "make keys for slots without them, name the program in [provisioner] programs of the provisioner, or mend "
        "what makes lists of its provider fail",
        see="docs/howto/fleet.md#when-a-pool-does-not-grow",
    ),
    Check(
        "project_warning",
        _of_gateway(judge.warned_project),
        "jobs of people are refused, or a limit does not say what holds",
        "set its members, defaults or limits with `iris project set`",
        see="docs/howto/team.md#the-tree",
    ),
    Check(
        "worker_ended",
        judge.ended_workers,
        "its tasks ended with it, and its resources are missing",
        "`iris down` and `iris up` bring it back; with `restart_workers = true` in [cluster] it is started again",
        see="docs/operating.md#one-machine",
    ),
    Check(
        "worker_lost",
        _of_gateway(judge.lost_worker),
        "its tasks were given to others, and its resources are missing",
        "start its worker again; of a host that does not come back: `iris worker forget HOST`",
        see="docs/troubleshooting.md#a-worker-is-lost",
    ),
    Check(
        "gateway_dead",
        _of_gateway(judge.warning_of_worker("gateway_dead")),
        "tasks there cannot submit child jobs nor read anything",
        "set gateway_url of [worker] to the address at which that host reaches a gateway",
        see="docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "overdeclared",
        _of_gateway(judge.warning_of_worker("overdeclared")),
        "more tasks are placed there than fit: they are slow, or are killed for lack of memory",
        "correct what [worker] declares, or leave it out: then the worker finds out",
        see="docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "loopback_address",
        _of_gateway(judge.warning_of_worker("loopback_address")),
        "routes and gangs on it cannot be reached from other hosts",
        "set address of [worker] to one at which other hosts reach it, or leave it out",
        see="docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "unscoped_sockets",
        _of_gateway(judge.warning_of_worker("unscoped_sockets")),
        "a task may pass files it has open to another user's task there, if that takes them",
        'a kernel that scopes them (Linux 6.12 with Landlock), or abstract_sockets of [worker]: "network" or "shared"',
        see="docs/security.md#tasks",
    ),
    Check(
        "limits_off",
        _of_gateway(judge.warning_of_worker("limits_off")),
        "a task that uses more than it requests takes it from the others of its host before it is stopped, if it is",
        "control groups that the worker may write: run it as root or as a unit with Delegate=yes",
        see="docs/hosts.md#limits-of-tasks",
    ),
    Check(
        "noexec_data",
        _of_gateway(judge.warning_of_worker("noexec_data")),
        "tasks cannot run a program or a script of their directory there, nor an environment that Iris builds",
        "data of [worker], or --data of `iris up`, on a file system that is mounted without noexec",
        see="docs/troubleshooting.md#a-worker-is-misconfigured",
    ),
    Check(
        "readable_keys",
        lambda facts: judge.some(
            (facts.readable and f"others may read {judge.listed(facts.readable)}") or ""
        ),
        "whoever logs in on this host can act as that service or user",
        "chmod 600 these files",
        see="docs/security.md",
    ),
    Check(
        "writable_files",
        lambda facts: judge.some(
            (facts.writable and f"others may change {judge.listed(facts.writable)}") or ""
        ),
        "whoever logs in on this host can make themselves an admin of the cluster",
        "chmod go-w these files, and the directory they are in",
        see="docs/security.md",
    ),
    Check(
        "worker_degraded",
        _of_gateway(judge.degraded_worker),
        "it gets no new tasks",
        "solve what it reports",
        see="docs/troubleshooting.md#a-worker-is-degraded",
    ),
)
"""Every check. A section of the manual stands behind each."""
