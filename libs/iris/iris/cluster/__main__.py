"""The supervisor's process: ``python -m iris.cluster FD OPTIONS``, started by `launch`."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import msgspec

from iris.client.http.address import read_cluster
from iris.client.problems import InvalidOption
from iris.cluster.options import StartedCluster, StartOptions
from iris.cluster.paths import ClusterPaths, make_token, note_damage, take_lock
from iris.cluster.pools import read_pools, slot_hosts
from iris.cluster.process import wait_for_end
from iris.cluster.programs import ClusterPrograms
from iris.cluster.settings import ClusterSettings, read_listen
from iris.cluster.supervisor import Supervisor
from iris_core.access.token_file import is_user_name
from iris_core.admission.decoder_words import in_words, place_of
from iris_service.child import DamagedFiles, StartFailed
from iris_service.listening import reserve
from iris_service.lock import DirectoryInUse
from iris_service.process_settings import RunSettings
from iris_service.settings import GIVEN_TO_TASKS, BadSetting, Settings, load
from iris_service.slice_processes import running_hosts, signal_hosts

MAX_PROXIES = 256
_SET_HERE = {
    ("worker", "id"): "leave it out",
    ("worker", "data"): "use --data for all of the cluster",
    ("worker", "gateway_url"): "use --http",
    ("worker", "address"): "leave it out",
    ("gateway", "http"): "use --http",
    ("gateway", "proxy_url"): "leave it out",
    ("proxy", "http"): "use `proxy` of [cluster]",
}
"""Settings of services that it sets, and what to use instead."""


def main(reply: int, options: StartOptions) -> int:
    """Run a cluster until it is stopped. The first reply is written to ``reply``, which is then
    closed.
    """
    paths = ClusterPaths(Path(options.data))
    try:
        take_lock(paths)
    except DirectoryInUse as error:
        return answer(reply, f"occupied {error}")
    with ExitStack() as ports:
        return run(reply, paths, options, ports)


def run(reply: int, paths: ClusterPaths, options: StartOptions, ports: ExitStack) -> int:
    """Run a cluster whose data directory is locked; ``ports`` reserves its ports until it has
    ended.
    """
    try:
        wait_for_predecessor(paths)
        programs = draw(paths, options, ports)
        workers = [host.worker for host in programs.hosts()]
        pools = read_pools(programs.settings.pools)
        end_fleet(paths)
        if programs.token_file:
            make_token(paths, owner())
        token = str(paths.token) if programs.token_file else ""
        ready_s = programs.settings.ready_s
        if options.attached:
            os.set_blocking(1, False)
        tell = say_aloud if options.attached else say
        supervisor = Supervisor(
            paths,
            programs.url,
            programs.proxy_url,
            [*workers, *slot_hosts(pools)],
            programs=programs.programs,
            say=tell,
            token_file=token,
            ready_s=ready_s,
            nats_server=programs.nats_server,
        )
        supervisor.start()
    except DamagedFiles as error:
        return answer(reply, f"failed {note_damage(paths, str(error))}")
    except (InvalidOption, BadSetting, DirectoryInUse, StartFailed, OSError) as error:
        return answer(reply, f"failed {error}")
    settings = programs.settings
    words = (programs.url, programs.proxy, len(workers))
    started = StartedCluster(
        *words,
        settings.ready_s,
        settings.sandbox,
        settings.auth,
        token_file=token,
        warnings=programs.oversubscribed(),
        pools=pools,
    )
    answer(reply, f"started {msgspec.json.encode(started).decode()}")
    say(f"the cluster on {paths.data} is started as {programs.url}")
    supervisor.run()
    say("everything is stopped")
    return 0


def end_fleet(paths: ClusterPaths) -> None:
    """End workers of slices that a supervisor that was killed has left. The records of their slices
    stay: the provisioner lists those as failed.
    """
    signal_hosts(running_hosts(paths.fleet), signal.SIGKILL)


def owner() -> str:
    """The user who starts the cluster, as a user of it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return name if is_user_name(name) else "admin"


def draw(paths: ClusterPaths, options: StartOptions, ports: ExitStack) -> ClusterPrograms:
    """The programs of the cluster, their ports reserved by ``ports``. Raises BadSetting,
    InvalidOption, OSError when a port is taken.
    """
    config = Path(options.config) if options.config else None
    given = load(config, os.environ)
    read = given.section("cluster", ClusterSettings)
    try:
        settings = msgspec.convert(
            {**msgspec.structs.asdict(read), **options.given}, ClusterSettings, strict=False
        )
    except msgspec.ValidationError as error:
        raise InvalidOption(f"[cluster] {place_of(str(error))}: {in_words(str(error))}") from None
    if given.text("gateway", "tls_cert") or given.text("proxy", "tls_cert"):
        raise InvalidOption(
            "`iris up` serves plain HTTP; tls_cert is for services that are started one by one"
        )
    accepted = {
        key: given.text("gateway", key) for key in ("token_file", "oidc_issuer", "oidc_audience")
    }
    tokens = accepted["token_file"]
    issuer = accepted["oidc_issuer"]
    if (tokens or issuer) and not settings.auth:
        raise InvalidOption(
            "--no-auth does without tokens, but [gateway] says whose are accepted; leave one of them out"
        )
    refuse_overruled(given, settings, os.environ)
    settings = as_declared(given, settings)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    http, proxy = (hold(ports, *read_listen(text)) for text in (settings.http, settings.proxy))
    if not (settings.auth or ip_address(http.rpartition(":")[0].strip("[]")).is_loopback):
        raise InvalidOption(
            f"--no-auth would let whoever reaches {http} run commands as you; listen on 127.0.0.1"
        )
    programs = ClusterPrograms(
        paths,
        settings,
        http,
        proxy,
        config=config,
        environ=dict(os.environ),
        memory_bytes=memory,
        cores=len(os.sched_getaffinity(0)),
        proxies=_whole(given.text("proxy", "workers") or "1"),
        drain_s=given.section("run", RunSettings).drain_s,
        token_file=paths.token_file if settings.auth and not tokens else None,
        withheld={
            f"proxy.{key}": text
            for key, text in accepted.items()
            if text and not given.text("proxy", key)
        },
        nats_server=given.text("nats", "server"),
        attributes=given.texts("worker", "attributes"),
        accelerators=given.text("worker", "accelerators"),
    )
    if metrics := given.text("run", "metrics"):
        host, port = read_listen(metrics)
        places = {
            name: hold(ports, host, port and port + n) for n, name in enumerate(programs.served())
        }
        programs = replace(programs, metrics=places)
    return programs


def refuse_overruled(
    given: Settings, settings: ClusterSettings, environ: Mapping[str, str]
) -> None:
    """Refuse settings of services that a local cluster cannot follow. Raises InvalidOption."""
    for (section, key), instead in _SET_HERE.items():
        variable = f"IRIS_{section}_{key}".upper()
        if given.text(section, key) and variable not in GIVEN_TO_TASKS & environ.keys():
            raise InvalidOption(f"[{section}] {key} is set by `iris up` itself; {instead}")
    for key, usual in (("sandbox", ("", "auto", "off")), ("run_as", ("", "worker"))):
        value = given.text("worker", key)
        if not settings.sandbox and value not in usual:
            raise InvalidOption(
                f"[worker] {key} is {value!r}, and `iris up` runs tasks as you without a sandbox; use --sandbox"
            )


def as_declared(given: Settings, settings: ClusterSettings) -> ClusterSettings:
    """The settings with the resources of each host that ``[worker]`` declares. Raises InvalidOption
    when ``[cluster]`` does too.
    """
    cpu = given.text("worker", "cpu_millis")
    memory = given.text("worker", "memory_bytes")
    for name, there, text in (
        ("worker_cpu", settings.worker_cpu, cpu),
        ("worker_memory", settings.worker_memory, memory),
    ):
        if there and text:
            raise InvalidOption(
                f"[cluster] {name} and [worker] both say what each host has; leave one of them out"
            )
    try:
        return msgspec.structs.replace(
            settings,
            worker_cpu=int(cpu) / 1000 if cpu else settings.worker_cpu,
            worker_memory=int(memory) if memory else settings.worker_memory,
        )
    except ValueError as error:
        raise InvalidOption(f"[worker] cpu_millis, memory_bytes: {error}") from None


def _whole(text: str) -> int:
    """Raises BadSetting."""
    if not text.isdigit() or not 1 <= int(text) <= MAX_PROXIES:
        raise BadSetting(f"[proxy] workers: not a number from 1 to {MAX_PROXIES}: {text!r}")
    return int(text)


def hold(ports: ExitStack, host: str, port: int) -> str:
    """Reserve ``host:port`` (a free one for port 0) while ``ports`` is open; returns it in numbers,
    as every process and client writes it. Raises OSError when it is taken.
    """
    where, number = ports.enter_context(reserve(host, port)).getsockname()[:2]
    return f"[{where}]:{number}" if ":" in where else f"{where}:{number}"


def wait_for_predecessor(paths: ClusterPaths) -> None:
    """Wait until the processes of a killed supervisor have ended. Raises OSError when they do
    not.
    """
    before = read_cluster(paths.data)
    pids = [pid for running in before.pids.values() for pid in running] if before else []
    within_s = before.stop_s if before else 0.0
    left = wait_for_end([pid for pid in pids if pid != os.getpid()], within_s)
    if left:
        raise OSError(
            f"processes of the cluster before still run: {left}; end them with `iris down`"
        )


def answer(reply: int, words: str) -> int:
    """Write the reply; returns the exit code of a failed start."""
    os.write(reply, words.encode())
    os.close(reply)
    return 1


def say(sentence: str) -> None:
    """Write a line to the supervisor's log."""
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {sentence}\n")
    sys.stderr.flush()


def say_aloud(sentence: str) -> None:
    """Write a line to the supervisor's log, and to the `iris up` that waits for its end, unless
    that does not read.
    """
    say(sentence)
    with contextlib.suppress(OSError):
        os.write(1, f"{sentence}\n".encode())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=StartOptions)))
