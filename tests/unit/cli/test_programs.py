import dataclasses
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from iris import Client
from iris.cli.cluster import launch
from iris.cli.cluster.launch import (
    closed_directory,
    elsewhere,
    look_proxy,
    look_scheduler,
    look_workers,
    remarks,
)
from iris.client.http.address import ClusterFile
from iris.client.http.contexts import Context, Contexts, contexts_path, save_contexts
from iris.client.problems import InvalidOption
from iris.cluster.__main__ import as_declared, draw, refuse_overruled
from iris.cluster.options import StartedCluster, StartOptions
from iris.cluster.paths import ClusterPaths
from iris.cluster.programs import ClusterPrograms
from iris.cluster.settings import ClusterSettings, read_listen, read_replicas, read_slices
from iris.cluster.supervisor import stop_phase
from iris_service.listening import listen
from iris_service.settings import load
from tests.support.answers import answering, in_turn, problem
from tests.support.passable import passable_directory

LOOPBACK = {"http": "127.0.0.1:0"}


def blueprint(**settings):
    return ClusterPrograms(
        ClusterPaths(Path("/data")),
        ClusterSettings(**settings),
        "127.0.0.1:1",
        "127.0.0.1:2",
        None,
        {"PATH": "/bin"},
        8000,
    )


def said_to(program):
    words = list(program.argv)
    return dict(
        words[place + 1].split("=", 1) for place, word in enumerate(words) if word == "--set"
    )


def test_every_service_runs_once_and_every_host_is_a_worker():
    programs = blueprint(workers=2, tpu=("v5litepod-16x2",)).programs("nats://x")

    assert [program.name for program in programs] == [
        "state",
        "scheduler",
        "proxy",
        "gateway",
        "provisioner",
        "notifier",
        "worker-0",
        "worker-1",
        *(f"slice-{number}-w{vm}" for number in range(2) for vm in range(4)),
    ]


def test_every_service_has_its_turn_to_end_as_the_cluster_stops():
    programs = blueprint(workers=1).programs("nats://x")

    turns = {program.service: stop_phase(program.service) for program in programs}
    last = {"worker": 1, "scheduler": 2, "gateway": 2, "state": 3}
    assert turns == {"proxy": 0, "provisioner": 0, "notifier": 2, **last}


def test_a_proxy_may_take_as_long_to_end_as_its_requests():
    made = dataclasses.replace(blueprint(workers=1), drain_s=60.0)
    times = {program.service: program.stop_s for program in made.programs("nats://x")}
    services = ("scheduler", "gateway", "provisioner", "notifier", "state")
    assert times == {"proxy": 65.0, "worker": 12.0, **dict.fromkeys(services, 6.0)}


def test_proxies_of_a_cluster_share_one_address():
    made = dataclasses.replace(blueprint(), proxies=2)
    said = {
        program.name: said_to(program)
        for program in made.programs("nats://x")
        if program.service == "proxy"
    }
    shared = {"proxy.http": "127.0.0.1:2", "proxy.workers": "1", "proxy.reuse_port": "True"}
    shared["nats.nkey_seed"] = "/data/nats/keys/proxy.seed"
    shared["proxy.discovery_file"] = "/data/discovery.json"
    assert said == {"proxy-0": shared, "proxy-1": shared}


def test_the_gateway_is_told_where_the_proxy_listens():
    made = blueprint()
    said = {program.service: said_to(program) for program in made.programs("nats://x")}

    assert said["proxy"]["proxy.http"] == "127.0.0.1:2"
    assert said["gateway"]["gateway.proxy_url"] == made.proxy_url == "http://127.0.0.1:2"


def test_the_hosts_of_a_slice_share_its_name_and_are_numbered():
    hosts = blueprint(workers=0, tpu=("v5litepod-16",)).hosts()

    assert [dict(host.attributes) for host in hosts] == [
        {
            "tpu-name": "slice-0",
            "tpu-worker-id": number,
            "tpu-topology": "v5litepod-16",
            "tpu-vm-count": 4,
            "device-type": "tpu",
            "device-variant": "v5litepod-16",
        }
        for number in range(4)
    ]
    assert {host.chips for host in hosts} == {4}


def test_workers_get_their_resources_and_share_this_hosts_memory():
    given = said_to(blueprint(workers=2, worker_cpu=1.5).programs("nats://x")[-1])

    assert (given["worker.cpu_millis"], given["worker.memory_bytes"]) == ("1500", "4000")
    assert given["worker.data"] == "/data/workers/worker-1"


def test_hosts_divide_the_accelerators_and_leave_the_rest_to_the_worker():
    made = blueprint(workers=2, tpu=("v4-8",))
    given = [said_to(program) for program in made.programs("nats://x")[-3:]]

    assert [one["worker.accelerators"] for one in given] == ["1/2", "2/2", "none"]
    assert [one.get("worker.chips") for one in given] == [None, None, "4"]
    assert ["worker.attributes" in one for one in given] == [False, False, True]


def test_what_the_section_of_workers_says_of_devices_is_honoured():
    made = dataclasses.replace(
        blueprint(workers=1, tpu=("v4-8",)), attributes=("zone=eu",), accelerators="all"
    )
    plain, vm = (said_to(program) for program in made.programs("nats://x")[-2:])

    assert not {"worker.accelerators", "worker.attributes"} & plain.keys()
    assert vm["worker.attributes"].startswith("zone=eu,tpu-name=slice-0,")


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        ("[worker]\nid = 'w'\n", {}, r"\[worker\] id is set by `iris up` itself"),
        ("[gateway]\nhttp = '127.0.0.1:1'\n", {}, "use --http"),
        ("[proxy]\nhttp = '127.0.0.1:1'\n", {}, r"use `proxy` of \[cluster\]"),
        ("[worker]\nsandbox = 'required'\n", {}, "use --sandbox"),
        ("[worker]\nrun_as = 'nobody'\n", {}, "use --sandbox"),
        ("[worker]\ncpu_millis = 5\n", {"worker_cpu": 2}, "leave one of them out"),
        ("[worker]\nmemory_bytes = 'x'\n", {}, "memory_bytes: invalid literal"),
    ],
)
def test_settings_that_a_local_cluster_cannot_follow_are_refused(tmp_path, section, options, said):
    config = tmp_path / "iris.toml"
    config.write_text(section)
    given, settings = load(config, {}), ClusterSettings(**options)

    def check():
        refuse_overruled(given, settings, {})
        as_declared(given, settings)

    with pytest.raises(InvalidOption, match=said):
        check()


def test_a_cluster_may_be_started_within_a_task():
    environ = {"IRIS_WORKER_ID": "w0", "IRIS_GATEWAY_URL": "http://127.0.0.1:1"}

    refuse_overruled(load(None, environ), ClusterSettings(), environ)


def test_resources_that_workers_declare_are_those_of_each_host(tmp_path):
    config = tmp_path / "iris.toml"
    config.write_text("[worker]\ncpu_millis = 1500\nmemory_bytes = 7\n")
    found = as_declared(load(config, {}), ClusterSettings())

    assert (found.worker_cpu, found.worker_memory) == (1.5, 7)
    assert as_declared(load(None, {}), ClusterSettings()) == ClusterSettings()


def test_hosts_share_the_cores_and_the_memory_of_this_machine():
    made = dataclasses.replace(blueprint(workers=2), cores=6)
    given = said_to(made.programs("nats://x")[-1])

    assert (given["worker.cpu_millis"], given["worker.memory_bytes"]) == ("3000", "4000")
    assert made.oversubscribed() == []


def test_hosts_that_declare_more_than_this_machine_has_are_said():
    made = dataclasses.replace(
        blueprint(workers=2, worker_cpu=8, worker_memory=5 << 30), cores=2, memory_bytes=4 << 30
    )
    assert made.oversubscribed() == [
        "2 hosts of 8 cores on a machine of 2: tasks may get less than they request",
        "2 hosts of 5GiB memory on a machine of 4GiB: tasks may get less than they request",
    ]
    small = dataclasses.replace(blueprint(workers=3), cores=2)
    assert small.oversubscribed() == [
        "3 hosts of 1 cores on a machine of 2: tasks may get less than they request"
    ]


def test_the_bus_password_is_on_no_command_line():
    for program in blueprint().programs("nats://iris:secret@x"):
        assert "secret" not in " ".join(program.argv)
        assert program.env["IRIS_NATS_URL"] == "nats://iris:secret@x"


def test_only_a_worker_stays_dead_unless_told_otherwise():
    kept = {program.name: program.kept for program in blueprint(workers=1).programs("")}

    assert kept == {
        "state": True,
        "scheduler": True,
        "proxy": True,
        "gateway": True,
        "provisioner": True,
        "notifier": True,
        "worker-0": False,
    }
    assert blueprint(workers=1, restart_workers=True).programs("")[-1].kept


def test_a_service_with_replicas_runs_under_numbered_names():
    names = [program.name for program in blueprint(workers=0, replicas=("state=2",)).programs("")]

    kept = ["scheduler", "proxy", "gateway", "provisioner", "notifier"]
    assert names == ["state-0", "state-1", *kept]


def released(paths: ClusterPaths, options: StartOptions) -> ClusterPrograms:
    """Drawn, its ports free again."""
    with ExitStack() as ports:
        return draw(paths, options, ports)


def drawn(tmp_path: Path, metrics: str, *replicas: str) -> ClusterPrograms:
    """As ordered with two workers and ``[run] metrics``."""
    config = tmp_path / "iris.toml"
    config.write_text(f'[run]\nlog_level = "debug"\nmetrics = "{metrics}"\n')
    given = {"http": "127.0.0.1:0", "workers": 2, "replicas": replicas}
    return released(
        ClusterPaths(tmp_path), StartOptions(data=str(tmp_path), config=str(config), given=given)
    )


def test_nobody_but_its_gateway_gets_the_port_of_a_cluster(tmp_path: Path):
    with ExitStack() as ports:
        options = StartOptions(data=str(tmp_path), config="", given={"http": "127.0.0.1:0"})
        port = int(draw(ClusterPaths(tmp_path), options, ports).http.rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        with listen("gateway", "127.0.0.1", port) as gateway:
            gateway.listen()
            socket.create_connection(("127.0.0.1", port)).close()


def test_each_process_has_a_free_port_of_its_own_for_its_metrics(tmp_path: Path):
    programs = drawn(tmp_path, "127.0.0.1:0", "state=2").programs("")

    assert [
        program.name for program in programs if said_to(program).get("run.metrics") is None
    ] == ["gateway"]
    assert len({program.metrics for program in programs}) == 9
    assert all(program.metrics.startswith("http://127.0.0.1:") for program in programs)


def test_without_an_address_for_metrics_only_the_gateway_serves_them(tmp_path: Path):
    programs = drawn(tmp_path, "").programs("")

    assert [program.name for program in programs if program.metrics] == ["gateway"]
    assert not any("run.metrics" in said_to(program) for program in programs)


def test_a_port_for_metrics_that_is_taken_or_does_not_exist_is_named(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"
        ):
            drawn(tmp_path, f"127.0.0.1:{port}")
    with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1:65536"):
        drawn(tmp_path, "127.0.0.1:65535")


@pytest.mark.parametrize("text", ["gateway=2", "state", "state=0", "state=x", "moon=1"])
def test_replicas_that_cannot_be_are_refused(text):
    with pytest.raises(InvalidOption, match="state=2"):
        read_replicas((text,))


@pytest.mark.parametrize("text", ["v5litepod", "v5litepod-17", "v5litepod-16x", "16x2"])
def test_slices_nobody_makes_are_refused(text):
    with pytest.raises(InvalidOption, match="v5litepod-16x2"):
        read_slices((text,))


@pytest.mark.parametrize(
    "text",
    ["8080", "x:y", "127.0.0.1:99999", "127.0.0.1:²", ":", "http://127.0.0.1:0", "[fe80::1%lo]:0"],
)
def test_what_cannot_be_listened_on_is_refused(text):
    with pytest.raises(InvalidOption):
        read_listen(text)


def test_the_section_of_the_settings_file_is_read_strictly():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"workers": -1}, ClusterSettings, strict=False)


def test_a_cluster_is_not_ready_before_its_proxy_listens():
    with socket.socket() as reserved, Client("http://127.0.0.1:1") as client:
        reserved.bind(("127.0.0.1", 0))
        look = look_proxy(f"127.0.0.1:{reserved.getsockname()[1]}")
        assert look(client).startswith("the proxy does not listen on 127.0.0.1:")
        reserved.listen()
        assert look(client) == ""


@pytest.mark.parametrize("known", [True, False])
def test_a_gateway_that_refuses_the_clusters_token_is_another_ones(known):
    refusing = in_turn(problem(401, "unauthenticated", "this token is not known here"))
    with (
        answering(refusing) as server,
        Client(server.url, token="iris_own", retry_for_s=0.0) as client,
    ):
        looks = look_scheduler(known=known), look_workers(1, known=known)
        assert [look(client) for look in looks] == [
            "this token is not known here" if known else ""
        ] * 2


@pytest.mark.parametrize(
    ("auth", "given"), [(False, "0"), (True, None)], ids=["no gateway asks", "each request"]
)
def test_tasks_get_tokens_only_where_the_gateway_wants_them(auth, given):
    made = blueprint(workers=0, auth=auth)
    state = next(program for program in made.programs("nats://x") if program.service == "state")
    assert said_to(state).get("state.task_token_s") == given


def test_the_proxy_knows_the_tokens_that_it_keeps_from_services():
    made = dataclasses.replace(blueprint(workers=0), token_file=Path("/data/tokens"))
    said = {program.service: said_to(program) for program in made.programs("nats://x")}
    assert (
        said["gateway"]["gateway.token_file"] == said["proxy"]["proxy.token_file"] == "/data/tokens"
    )


@pytest.mark.parametrize(
    ("config", "given", "made"),
    [
        ("", {}, True),
        ("[cluster]\nauth = false\n", {}, False),
        ("[cluster]\nauth = false\n", {"auth": True}, True),
        ('[gateway]\ntoken_file = "/etc/tokens"\n', {}, False),
        ('[gateway]\noidc_issuer = "https://x"\n', {}, True),
    ],
    ids=["by default", "turned off", "turned on again", "there is one", "beside an issuer"],
)
def test_a_token_is_made_unless_the_gateway_has_others_or_wants_none(tmp_path, config, given, made):
    (tmp_path / "iris.toml").write_text(config)
    options = StartOptions(
        str(tmp_path / "data"), str(tmp_path / "iris.toml"), {**LOOPBACK, **given}
    )
    assert (released(ClusterPaths(tmp_path / "data"), options).token_file is not None) is made


@pytest.mark.parametrize("key", ["token_file", "oidc_issuer"])
def test_tokens_that_are_named_and_turned_off_are_refused(tmp_path, key):
    (tmp_path / "iris.toml").write_text(f'[gateway]\n{key} = "x"\n')
    options = StartOptions(
        str(tmp_path / "data"), str(tmp_path / "iris.toml"), {**LOOPBACK, "auth": False}
    )
    with pytest.raises(InvalidOption, match="--no-auth"):
        released(ClusterPaths(tmp_path / "data"), options)


def test_a_user_without_a_home_is_told_where_the_data_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", "/bin/sh")  # which every user may run

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("IRIS_DATA", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    started = StartedCluster("http://127.0.0.1:9", "127.0.0.1:9", 0, 1.0, sandbox=True, auth=False)
    assert remarks(started, Path("/data/a b")) == [
        "its data: /data/a b; `export IRIS_DATA='/data/a b'` in other shells"
    ]


def test_the_proxy_withholds_the_tokens_that_the_gateway_accepts(tmp_path):
    config = tmp_path / "iris.toml"
    issuer = (
        'oidc_issuer = "https://id.example.org"\noidc_audience = "iris"\noidc_keys = "keys.json"'
    )
    config.write_text(
        f'[gateway]\ntoken_file = "tokens"\n{issuer}\n[proxy]\noidc_audience = "other"\n'
    )
    programs = released(
        ClusterPaths(tmp_path), StartOptions(str(tmp_path), str(config), LOOPBACK)
    ).programs("nats://127.0.0.1:1")
    [proxy] = [program.argv for program in programs if program.service == "proxy"]
    given = [word for word in proxy if word.startswith(("proxy.token_file", "proxy.oidc"))]
    assert given == ["proxy.token_file=tokens", "proxy.oidc_issuer=https://id.example.org"]


def test_a_start_that_another_has_begun_may_take_as_long_as_that_was_given(
    tmp_path, monkeypatch, capfd
):
    with answering(lambda _: problem(503, "unavailable", "the bus is away")) as server:
        running = ClusterFile(server.url, "nats://x", proxy_url="http://127.0.0.1:1", ready_s=0.01)
        monkeypatch.setattr(launch, "find_running", lambda _: running)
        monkeypatch.setattr(launch, "lock_holder", lambda _: 1)
        code = launch.join(ClusterPaths(tmp_path))
    assert code != 0
    assert "the cluster is not ready after 0.01 s: the bus is away" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ({"IRIS_DATA": "/data"}, []),
        ({"IRIS_DATA": "/data", "IRIS_URL": "http://localhost:1"}, []),
        (
            {"IRIS_DATA": "/data", "IRIS_URL": "http://iris.example:8080"},
            [
                "from this shell, iris and the SDK go to http://iris.example:8080 (IRIS_URL), not here; to go here: "
                "export IRIS_URL=http://127.0.0.1:1"
            ],
        ),
        (
            {"IRIS_DATA": "/other", "IRIS_CONTEXT": "shared"},
            [
                "from this shell, iris and the SDK go to http://iris.example:8080 (the context in use), not here; to "
                "go here: export IRIS_DATA=/data IRIS_URL=http://127.0.0.1:1"
            ],
        ),
    ],
)
def test_commands_that_would_go_to_another_gateway_are_said(tmp_path, shell, said):
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **shell}
    save_contexts(
        contexts_path(environ), Contexts("", {"shared": Context("http://iris.example:8080")})
    )

    assert elsewhere("http://127.0.0.1:1", Path("/data"), environ) == said


def test_a_directory_that_tasks_may_not_enter_is_found_above_a_program():
    with passable_directory() as place:
        home = place / "home"
        program = home / "venv" / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.touch()
        link = place / "python"
        link.symlink_to(program)
        assert closed_directory(link) is None

        home.chmod(0o700)
        assert (closed_directory(program), closed_directory(link)) == (home, home)
