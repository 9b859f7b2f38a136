"""Each check of `iris doctor`: what it says of a planted problem, and that a healthy cluster has
none.
"""

import msgspec
import pytest

from iris.doctor.checks import CHECKS, notes, problems
from iris.doctor.facts import ClusterFacts, GatewayFacts, PoolFacts, ProcessFacts, WorkerFacts
from iris.doctor.judgements import covers
from iris_bus.servers.bus_facts import (
    BusFacts,
    ClientName,
    ConnectedProcess,
    KeyFacts,
    ServerFacts,
    StreamFacts,
    client_name,
)
from iris_core.access.roles import ROLES, login, permissions
from iris_core.messages.processes import NO_TOKEN_FILE
from iris_core.subjects import JOURNAL, LAST_BACKUP, STORES

SERVICES = [login(role.name) for role in ROLES if not role.alone]


def key_of(user) -> KeyFacts:
    may = permissions(user)
    return KeyFacts(user.label, may.publish, may.subscribe)


NOW_S = 1_800_000_000.0
DAY_S = 86_400.0
GATEWAY = GatewayFacts(
    "http://gw:8080",
    "--url",
    version="0.1.0",
    tokens={"a (pid 1)": "5e", "b (pid 2)": "5e"},
    workers=(WorkerFacts("w0", "healthy", "", "0.1.0"),),
    now_s=NOW_S,
)
SERVERS = tuple(ServerFacts(f"n{n}", "2.15.1", max_bytes=1 << 40) for n in range(3))
BACKED_UP = {LAST_BACKUP: str(int(NOW_S - 3600) * 1000)}
BUS = BusFacts(
    "nats://n0:4222",
    size=3,
    servers=SERVERS,
    streams=tuple(
        StreamFacts(
            name,
            declared=3,
            current=3,
            clustered=True,
            notes=BACKED_UP if name == JOURNAL.name else {},
        )
        for name in STORES
    ),
    processes=(
        ConnectedProcess("state", "0.1.0", "iris", "IRIS", "10.0.0.1"),
        ConnectedProcess("state", "0.1.0", "iris", "IRIS", "10.0.0.2"),
        ConnectedProcess("scheduler", "0.1.0", "iris", "IRIS", "10.0.0.1"),
        ConnectedProcess("worker", "0.1.0", "iris", "worker-w0", "10.0.0.3"),
    ),
    keys=tuple(map(key_of, [*SERVICES, login("worker", "w0"), login("observer", "local")])),
    has_targets=False,
)
HEALTHY = ClusterFacts("0.1.0", "/data", 100 << 30, gateway=GATEWAY, bus=BUS)


def gateway(**fields) -> ClusterFacts:
    return msgspec.structs.replace(HEALTHY, gateway=msgspec.structs.replace(GATEWAY, **fields))


def bus(**fields) -> ClusterFacts:
    return msgspec.structs.replace(HEALTHY, bus=msgspec.structs.replace(BUS, **fields))


TARGETS = bus(has_targets=True)
"""The connections to the servers show that no notifier runs."""


def server(**fields) -> ClusterFacts:
    return bus(servers=(*SERVERS[:2], msgspec.structs.replace(SERVERS[2], **fields)))


def journal(**fields) -> ClusterFacts:
    own = msgspec.structs.replace(BUS.streams[0], **fields)
    return bus(streams=(own, *BUS.streams[1:]))


def workers(*found: WorkerFacts) -> ClusterFacts:
    return gateway(workers=found)


def without(label: str, subject: str) -> ClusterFacts:
    keys = [key for key in BUS.keys if key.label != label]
    key = next(key for key in BUS.keys if key.label == label)
    publish = tuple(one for one in key.publish or () if one != subject)
    subscribe = tuple(one for one in key.subscribe or () if one != subject)
    return bus(keys=(*keys, KeyFacts(label, publish, subscribe)))


W0 = WorkerFacts("w0", "healthy", "", "0.1.0")
TWO_STATES = (ProcessFacts("state", "a", 1), ProcessFacts("state", "b", 2))
STATES, SCHEDULER = BUS.processes[:2], BUS.processes[2]
OTHER = ConnectedProcess("state", "0.1.0", "staging", "IRIS", "10.9.9.9")

PAUSED = PoolFacts("old", "exec", "paused", "paused by ann", by_hand=True)

PLANTED = [
    (
        msgspec.structs.replace(HEALTHY, damage="stored data: commit 7"),
        {"damaged_data": "stored data: commit 7"},
    ),
    (
        ClusterFacts("0.1.0"),
        {
            "gateway_unreachable": "no gateway can be checked: none is known; --url or IRIS_URL says where it is, and "
            "`iris up` starts a local one"
        },
    ),
    (gateway(error="nobody answers"), {"gateway_unreachable": "nobody answers"}),
    (
        gateway(refused="Authentication required", token="IRIS_TOKEN"),
        {
            "wrong_token": "the gateway at http://gw:8080 does not accept the token from IRIS_TOKEN: "
            "Authentication required"
        },
    ),
    (
        gateway(refused="Authentication required"),
        {
            "wrong_token": "the gateway at http://gw:8080 requires a token, and none was given: Authentication required"
        },
    ),
    (
        gateway(tokens={"a (pid 1)": "5e", "b (pid 2)": "7f", "c (pid 3)": "5e"}),
        {"different_tokens": "3 gateways accept different tokens: a (pid 1), c (pid 3); b (pid 2)"},
    ),
    (
        gateway(tokens={"a (pid 1)": "5e", "b (pid 2)": NO_TOKEN_FILE}),
        {
            "different_tokens": "2 gateways accept different tokens: a (pid 1); b (pid 2) without a token_file"
        },
    ),
    (gateway(not_ready="no leader"), {"not_ready": "no leader"}),
    (workers(), {"no_healthy_worker": "no worker has registered"}),
    (workers(WorkerFacts("w0", "lost")), {"no_healthy_worker": "none of 1 worker is healthy"}),
    (
        workers(W0, WorkerFacts("w1", "degraded", "disk is full")),
        {"worker_degraded": "worker w1 is degraded: disk is full"},
    ),
    (
        workers(W0, WorkerFacts("w1", "healthy", clock_ahead_ms=-61_500)),
        {"clock_off": "the clock of worker w1 is 61.5 s behind the state service's"},
    ),
    (
        gateway(
            processes=(*TWO_STATES, ProcessFacts("state", "b", 7, times_ahead_s=-3600.0)),
            workers=(WorkerFacts("w0", "healthy", clock_ahead_ms=3_600_000),),
        ),
        {
            "clock_off": "the clock of state on b (pid 7) was set, or was wrong: times of records "
            "are 3600.0 s behind it"
        },
    ),
    (gateway(unscheduled="no scheduler answers"), {"no_scheduler": "no scheduler answers"}),
    (bus(processes=STATES), {"no_scheduler": "no scheduler is connected to the NATS servers"}),
    (
        bus(processes=(STATES[0], SCHEDULER)),
        {"no_standby": "there are 3 NATS servers and one state service, on 10.0.0.1"},
    ),
    # as a gateway sees it: a leader has two connections, and is one process
    (
        gateway(processes=(ProcessFacts("state", "a", 1), ProcessFacts("proxy", "a", 2))),
        {"no_standby": "there are 3 NATS servers and one state service, on a"},
    ),
    (journal(notes={}), {"no_backup": "no backup of this cluster has ever been made"}),
    (
        journal(notes={LAST_BACKUP: str(int(NOW_S - 3 * DAY_S) * 1000)}),
        {"no_backup": "the last backup was made on 2027-01-12 at 08:00 UTC"},
    ),
    (
        journal(current=2, behind=("n2",)),
        {"server_behind": "NATS server n2 answers, and has not caught up with IRIS_JOURNAL"},
    ),
    (
        gateway(
            processes=(
                *TWO_STATES,
                ProcessFacts("gateway", "b", 7, 180.0, {"/etc/a.pem": NOW_S - 1}),
            )
        ),
        {
            "clock_off": "the clock of gateway on b (pid 7) is 180.0 s ahead of the asked gateway's",
            "certificate_expires": "the certificate /etc/a.pem of gateway on b (pid 7) expired "
            "on 2027-01-15 at 07:59 UTC",
        },
    ),
    (
        gateway(
            processes=(
                *TWO_STATES,
                ProcessFacts("proxy", "b", 7, 0.0, {"/etc/a.pem": NOW_S + 6 * DAY_S}),
            )
        ),
        {
            "certificate_expires": "the certificate /etc/a.pem of proxy on b (pid 7) expires "
            "on 2027-01-21 at 08:00 UTC"
        },
    ),
    (
        gateway(deployments=True, processes=TWO_STATES),
        {"no_proxy": "there are deployments, and no proxy answers"},
    ),
    (
        gateway(pools=(PoolFacts("cpu", "process", "ok"),), processes=TWO_STATES),
        {"no_provisioner": "there are pools, and no provisioner answers"},
    ),
    (
        msgspec.structs.replace(TARGETS, gateway=GATEWAY),
        {"no_notifier": "there are targets for messages, and no notifier answers"},
    ),
    (
        gateway(pools=(PoolFacts("v5e", "exec", "paused", "permission denied"), PAUSED)),
        {"pool_halted": "pool v5e is paused: permission denied"},
    ),
    (
        gateway(pools=(PoolFacts("cpu", "process", "stopped", "3 of 5 hosts are lost"),)),
        {"pool_halted": "pool cpu is stopped: 3 of 5 hosts are lost"},
    ),
    (
        gateway(pools=(PoolFacts("cpu", "process", "ok", warnings=("no keys for slots 4-7",)),)),
        {"pool_warning": "pool cpu: no keys for slots 4-7"},
    ),
    (
        msgspec.structs.replace(gateway(pools=(PoolFacts("v5e", "tpu", "ok"),)), data=""),
        {
            "unnamed_cluster": "slices of v5e are labelled iris, the name of every cluster that has no other"
        },
    ),
    (msgspec.structs.replace(gateway(pools=(PoolFacts("cpu", "process", "ok"),)), data=""), {}),
    (gateway(pools=(PoolFacts("v5e", "tpu", "ok"),)), {}),
    (
        gateway(projects={"/research": ("it has no members",)}),
        {"project_warning": "project /research: it has no members"},
    ),
    (
        msgspec.structs.replace(HEALTHY, writable=("/etc/iris/tokens",)),
        {"writable_files": "others may change /etc/iris/tokens"},
    ),
    (workers(W0, WorkerFacts("w1", "lost")), {"worker_lost": "1 of 2 hosts is LOST: w1"}),
    (workers(W0, WorkerFacts("cpu-0-0", "lost", given_up=True)), {}),
    *(
        (
            workers(W0, WorkerFacts("w1", "healthy", warnings={code: "words"})),
            {code: "worker w1: words"},
        )
        for code in (
            *("gateway_dead", "overdeclared", "loopback_address", "unscoped_sockets"),
            *("noexec_data", "limits_off"),
        )
    ),
    (
        bus(
            servers=(ServerFacts("n0", "2.15.1", max_bytes=20 << 30),),
            size=1,
            streams=tuple(
                StreamFacts(name) for name in STORES if name not in ("IRIS_LOGS", "IRIS_ARTIFACTS")
            ),
        ),
        {
            "store_too_small": f"NATS server n0 may store {20 << 30} bytes, and streams reserve up to {40 << 30}: "
            "IRIS_LOGS, IRIS_ARTIFACTS are not there"
        },
    ),
    (
        bus(
            streams=(
                msgspec.structs.replace(BUS.streams[0], lost="worker w0 has a job"),
                *BUS.streams[1:],
            )
        ),
        {"records_lost": "worker w0 has a job"},
    ),
    (
        msgspec.structs.replace(HEALTHY, readable=("/etc/iris/state.seed",)),
        {"readable_keys": "others may read /etc/iris/state.seed"},
    ),
    (
        gateway(clock_ahead_s=9),
        {"clock_off": "the clock of the gateway is 9.0 s ahead of this machine's"},
    ),
    (
        server(clock_ahead_s=5.5),
        {"clock_off": "the clock of NATS server n2 is 5.5 s ahead of this machine's"},
    ),
    (
        workers(W0, WorkerFacts("w1", "healthy", version="0.0.9")),
        {
            "version_skew": "0.0.9: worker w1; 0.1.0: this command, the gateway, worker w0, state on 10.0.0.1, "
            "state on 10.0.0.2 and 1 more"
        },
    ),
    (
        bus(processes=(ConnectedProcess("gateway", "0.2.0", "iris", "IRIS", "10.0.0.1"),)),
        {"version_skew": "0.1.0: this command, the gateway, worker w0; 0.2.0: gateway on 10.0.0.1"},
    ),
    (
        bus(processes=(ConnectedProcess("scheduler", "0.2.0", "iris", "IRIS", "10.0.0.1"),)),
        {
            "version_skew": "0.1.0: this command, the gateway, worker w0; 0.2.0: scheduler on 10.0.0.1"
        },
    ),
    (
        server(version="2.12.3"),
        {"server_version_skew": "the NATS servers are of 2 versions: 2.12.3, 2.15.1"},
    ),
    (
        bus(processes=(*BUS.processes, OTHER)),
        {
            "two_clusters": "processes of 2 clusters share the account: iris (state on 10.0.0.1, state on 10.0.0.2, "
            "scheduler on 10.0.0.1, worker on 10.0.0.3); staging (state on 10.9.9.9)"
        },
    ),
    (
        bus(
            processes=(
                *BUS.processes,
                ConnectedProcess("worker", "0.1.0", "iris", "worker-w0", "10.9.9.9"),
            )
        ),
        {"two_clusters": "2 processes are worker w0: on 10.0.0.3, 10.9.9.9"},
    ),
    (
        bus(
            streams=(
                StreamFacts("IRIS_JOURNAL", declared=3, current=2, clustered=True, notes=BACKED_UP),
                *BUS.streams[1:],
            )
        ),
        {"under_replicated": "fewer copies than there should be: IRIS_JOURNAL (2 of 3)"},
    ),
    (
        bus(
            streams=tuple(StreamFacts(name, clustered=True, notes=BACKED_UP) for name in STORES[:2])
        ),
        {
            "under_replicated": "fewer copies than there should be: IRIS_JOURNAL (1 of 3), IRIS_EVENTS (1 of 3)"
        },
    ),
    (bus(error="no server answered"), {"nats_unreachable": "no server answered"}),
    (bus(refused="not the key in f"), {"key_refused": "not the key in f"}),
    (bus(keys=(KeyFacts("proxy", refused="not that key"),)), {"key_refused": "not that key"}),
    (
        without("gateway", "iris.state.command.admin"),
        {"missing_permission": "gateway may not publish to iris.state.command.admin"},
    ),
    (
        without("worker-w0", "iris.worker.w0.order"),
        {"missing_permission": "worker-w0 may not subscribe to iris.worker.w0.order"},
    ),
    (
        bus(jetstream=False, streams=()),
        {
            "no_jetstream": "the NATS server at nats://n0:4222 stores nothing: JetStream is off, there or for the "
            "account"
        },
    ),
    (server(jetstream=False), {"no_jetstream": "JetStream is off on n2"}),
    (
        bus(certificates={"n0:4222": NOW_S + 90 * DAY_S, "n1:4222": NOW_S - 1}, now_s=NOW_S),
        {
            "certificate_expires": "the certificate of the NATS server at n1:4222 expired "
            "on 2027-01-15 at 07:59 UTC"
        },
    ),
    (
        bus(
            servers=(
                *SERVERS[:2],
                ServerFacts("n2", jetstream=False, error="JetStream not enabled"),
            ),
            streams=(StreamFacts("IRIS_LOGS", offline=("n2",)),),
        ),
        {
            "disk_full": "NATS server n2 has copies of streams and stores nothing any more, as after a "
            "failed write"
        },
    ),
    (
        bus(
            streams=(
                StreamFacts("IRIS_JOURNAL", "memory", notes=BACKED_UP),
                StreamFacts("IRIS_LOGS", "memory"),
            )
        ),
        {"memory_storage": "IRIS_JOURNAL, IRIS_LOGS are kept in the memory of the NATS servers"},
    ),
    (
        server(sync_always=False, sync_s=120.0),
        {"no_sync": "NATS server n2 syncs its store to disk every 120 s, not before it confirms"},
    ),
    (
        bus(
            streams=(
                StreamFacts("IRIS_JOURNAL", offline=("n1",), notes=BACKED_UP),
                StreamFacts("IRIS_LOGS", offline=("n1",)),
            )
        ),
        {"server_down": "n1 of the NATS servers does not answer the others"},
    ),
    (bus(servers=SERVERS[:2]), {"server_down": "1 of 3 NATS servers does not answer"}),
    (
        bus(servers=SERVERS[:1], streams=(StreamFacts("IRIS_LOGS", offline=("n2",)),)),
        {"server_down": "2 of 3 NATS servers do not answer: n2"},
    ),
    (
        msgspec.structs.replace(HEALTHY, gone={"worker-0": 5.0, "w0": -1.0}),
        {
            "worker_ended": "worker-0 of `iris up` ended and is not restarted; its log is in /data/log"
        },
    ),
    (
        msgspec.structs.replace(HEALTHY, free_bytes=5 << 20),
        {"disk_full": "5 MiB are free for /data"},
    ),
    (
        server(error="write error: no space"),
        {"disk_full": "NATS server n2 cannot store: write error: no space"},
    ),
    (
        server(stored_bytes=960, max_bytes=1000),
        {"disk_full": "the store of NATS server n2 holds 960 of 1000 bytes"},
    ),
    (
        server(error="not current"),
        {"server_unhealthy": "NATS server n2 is not healthy: not current"},
    ),
]


@pytest.mark.parametrize(("facts", "found"), PLANTED)
def test_a_planted_problem_is_found_and_nothing_else(facts: ClusterFacts, found: dict[str, str]):
    assert {problem.code: problem.what for problem in problems(facts)} == found


def test_every_check_has_a_planted_problem():
    assert {code for _, found in PLANTED for code in found} == {check.code for check in CHECKS}


def test_a_healthy_cluster_has_no_problem_and_nothing_is_unchecked():
    assert (problems(HEALTHY), notes(HEALTHY)) == ([], [])


def test_a_cluster_in_another_account_of_the_same_servers_is_none_of_ours():
    other = ConnectedProcess("state", "0.2.0", "staging", "IRIS_STAGING", "10.9.9.9")
    assert problems(bus(account="IRIS", processes=(*BUS.processes, other))) == []
    assert {found.code for found in problems(bus(processes=(*BUS.processes, other)))} == {
        "two_clusters",
        "version_skew",
    }


def test_a_late_heartbeat_is_no_wrong_clock():
    assert problems(workers(W0, WorkerFacts("w1", "healthy", clock_ahead_ms=-9_000))) == []
    assert problems(workers(W0, WorkerFacts("w1", "healthy", clock_ahead_ms=9_000))) != []


def test_what_is_unknown_is_no_problem_but_is_named():
    only_gateway, only_bus = (
        msgspec.structs.replace(HEALTHY, bus=None),
        msgspec.structs.replace(HEALTHY, gateway=None),
    )
    assert problems(only_gateway) == problems(only_bus) == []
    assert [
        note.partition(":")[0] for facts in (only_gateway, only_bus) for note in notes(facts)
    ] == [
        "the NATS servers were not checked",
        "no gateway was checked",
    ]
    facts = bus(
        keys=(KeyFacts("proxy", unknown="no answer"),), not_asked=("the servers were not asked",)
    )
    assert problems(facts) == []
    assert notes(facts) == [
        "the servers were not asked",
        "the permissions of proxy were not checked: no answer",
    ]


def test_a_missing_notifier_is_a_problem_where_somebody_is_to_be_told():
    with_one = (*TWO_STATES, ProcessFacts("notifier", "a", 3))
    asked = {
        (len(processes), has_targets): msgspec.structs.replace(
            gateway(processes=processes), bus=msgspec.structs.replace(BUS, has_targets=has_targets)
        )
        for processes in (TWO_STATES, with_one)
        for has_targets in (None, False, True)
    }
    told = {key: [one.code for one in problems(facts)] for key, facts in asked.items()}
    noted = [key for key, facts in asked.items() if notes(facts)]
    assert told == {key: ["no_notifier"] if key == (len(TWO_STATES), True) else [] for key in asked}
    assert noted == [(len(TWO_STATES), None)]


def test_slow_moves_between_control_groups_are_no_problem_but_advice():
    warned = {"slow_group_moves": "/sys/fs/cgroup/unified is mounted without favordynmods"}
    hosts = [WorkerFacts(name, "healthy", warnings=warned) for name in ("w1", "w2")]
    facts = workers(W0, *hosts)
    assert problems(facts) == []
    [note] = notes(facts)
    assert note.startswith(
        "w1, w2: /sys/fs/cgroup/unified is mounted without favordynmods: a task that starts"
    )
    assert "slower forks and exits of the whole host" in note


def test_an_unrestricted_login_lacks_only_what_it_is_denied():
    everything = KeyFacts("proxy", None, None)
    assert problems(bus(keys=(everything,))) == []
    denied = msgspec.structs.replace(everything, denied=("iris.proxy.*",))
    assert [problem.what for problem in problems(bus(keys=(denied,)))] == [
        "proxy may not publish to iris.proxy.load"
    ]


@pytest.mark.parametrize(
    ("pattern", "subject", "does"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("a.b", "a.*", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*", "a.>", False),
        (">", "a.>", True),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
    ],
)
def test_one_subject_pattern_covers_another(pattern: str, subject: str, does: bool):
    assert covers(pattern, subject) is does


def test_only_names_of_our_connections_name_a_process():
    name = ClientName("state", "0.1.0", "prod")
    assert (str(name), client_name(str(name))) == ("iris-state/0.1.0 (prod)", name)
    name = ClientName("state", "0.1.0", "prod (eu)", "4f2a914f2a91")
    assert (str(name), client_name(str(name))) == (
        "iris-state/0.1.0 (prod (eu)) 4f2a914f2a91",
        name,
    )
    assert [client_name(text) for text in ("", "NATS CLI Version 0.3", "iris-doctor")] == [
        None,
        None,
        None,
    ]
