"""The programs that run containers, and what they are told: one row each. Pure.

They take the same words where this table names no others. Source: docker-run(1), podman-run(1),
podman-inspect(1); docs/adr/0047-one-client-process-per-container.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

WORKER_LABEL = "iris.worker"
_TASK_LABEL = "iris.task"
_STATE = "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}"
_LEAST_CPUS = 0.01
NOT_RUN = 125
"""The exit code of a client that could not have its container run."""
OUT_OF_MEMORY = "oom"
"""The file by which podman's monitor tells that a memory limit was reached, in the directory of the
client; podman before version 5 does not look there. Source: conmon issue 504.
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program.

    Attributes:
        probe: the arguments of a command that succeeds where it can run containers.
        still: of one that succeeds where it is still there; the probe of podman takes ten times the
            CPU time.
        brings_init: whether it has a program of its own that forwards signals in a container.
        keeps_user: its option by which an ordinary user remains itself in a container.
        registry: what names an image of a registry, and no file of the host, for ``pull``.
        at_once: its option of ``rm`` by which there is no grace period.
        gpus: the options for the GPUs with these indices.
    """

    probe: tuple[str, ...]
    still: tuple[str, ...]
    brings_init: bool
    keeps_user: tuple[str, ...]
    registry: str
    at_once: tuple[str, ...]
    gpus: Callable[[Sequence[int]], tuple[str, ...]]


def _docker_gpus(indices: Sequence[int]) -> tuple[str, ...]:
    """By the NVIDIA Container Toolkit. A list is quoted, since the option's value is read as
    CSV.
    """
    return ("--gpus", f'"device={",".join(map(str, indices))}"') if indices else ()


def _podman_gpus(indices: Sequence[int]) -> tuple[str, ...]:
    """By the Container Device Interface."""
    return tuple(word for index in indices for word in ("--device", f"nvidia.com/gpu={index}"))


RUNTIMES: Mapping[str, Runtime] = {
    "docker": Runtime(
        probe=("version", "--format", "{{.Server.Version}}"),
        still=("version", "--format", "{{.Server.Version}}"),
        brings_init=True,
        keeps_user=(),
        registry="",
        at_once=(),
        gpus=_docker_gpus,
    ),
    "podman": Runtime(
        probe=("info", "--format", "{{.Host.OCIRuntime.Name}}"),
        still=("version", "--format", "{{.Client.Version}}"),
        brings_init=False,
        keeps_user=("--userns=keep-id",),
        registry="docker://",
        at_once=("--time", "0"),
        gpus=_podman_gpus,
    ),
}
"""By the name of the program, the preferred one first."""


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """The runtime of a host.

    Attributes:
        init: its program for ``--init``; empty: none is known.
        label: of all containers of this worker.
        rootless: it does not run as root.
    """

    name: str
    init: str
    label: str
    rootless: bool


@dataclass(frozen=True, slots=True)
class Container:
    """A container that is to run.

    Attributes:
        user, groups: whom it runs as. env_file: with a line for each variable.
        mounts: paths of the host, and whether it may write there.
        memory_limit_bytes, cpu_share_millis, cpu_limit_millis, pids: limits; 0: none. shm_bytes: of
            its /dev/shm.
        terminal: whether it reads and writes that of its client.
    """

    name: str
    task: str
    image: str
    command: tuple[str, ...]
    workdir: str
    env_file: str
    user: tuple[int, int]
    groups: tuple[int, ...] = ()
    mounts: tuple[tuple[str, bool], ...] = ()
    devices: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    memory_limit_bytes: int = 0
    cpu_share_millis: int = 0
    cpu_limit_millis: int = 0
    pids: int = 0
    shm_bytes: int = 0
    terminal: bool = False


def run_command(host: HostRuntime, container: Container) -> tuple[str, ...]:
    """The command that runs a container, prints what it prints, forwards signals, and ends with its
    exit code.
    """
    return (
        *(host.name, "run", "--name", container.name, "--pull", "never", "--network", "host"),
        *(("--interactive", "--tty") if container.terminal else ()),
        *("--label", f"{WORKER_LABEL}={host.label}", "--label", f"{_TASK_LABEL}={container.task}"),
        *_init(host),
        *_user(host, container),
        *_limits(container),
        *_devices(host, container),
        *("--log-driver", "none", "--no-healthcheck"),  # the worker keeps the output
        *("--env-file", container.env_file, "--workdir", container.workdir),
        *(word for path, writes in container.mounts for word in ("--mount", _mount(path, writes))),
        *("--entrypoint", "", container.image, *container.command),
    )


def inside(directory: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command in another directory than that of its attempt, where a task could have put
    links.
    """
    return ("/bin/sh", "-c", 'cd "$0" && exec "$@"', directory, *command)


def _init(host: HostRuntime) -> tuple[str, ...]:
    """The first process of a namespace ignores TERM unless it handles it, so another one is the
    first.
    """
    if RUNTIMES[host.name].brings_init:
        return ("--init",)
    return ("--init", "--init-path", host.init) if host.init else ()


def _user(host: HostRuntime, container: Container) -> tuple[str, ...]:
    uid, gid = container.user
    groups = (word for group in container.groups for word in ("--group-add", str(group)))
    kept = RUNTIMES[host.name].keeps_user if host.rootless else ()
    return (
        *kept,
        "--user",
        f"{uid}:{gid}",
        *groups,
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
    )


def _limits(container: Container) -> tuple[str, ...]:
    memory = container.memory_limit_bytes
    cpus = max(container.cpu_limit_millis / 1000, _LEAST_CPUS)
    shares = max(container.cpu_share_millis * 1024 // 1000, 2)
    words = {
        "--memory": str(memory) if memory else "",
        "--memory-swap": str(memory)
        if memory
        else "",  # memory and swap together: nothing is swapped out instead
        "--shm-size": str(container.shm_bytes) if container.shm_bytes else "",
        "--cpu-shares": str(shares) if container.cpu_share_millis else "",
        "--cpus": f"{cpus:g}" if container.cpu_limit_millis else "",
        "--pids-limit": str(container.pids) if container.pids else "",
    }
    return tuple(word for option, value in words.items() if value for word in (option, value))


def _devices(host: HostRuntime, container: Container) -> tuple[str, ...]:
    """Chips pin memory, which the default limit does not let them."""
    files = tuple(word for path in container.devices for word in ("--device", path))
    pinned = ("--ulimit", "memlock=-1:-1") if container.devices or container.gpus else ()
    return (*files, *RUNTIMES[host.name].gpus(container.gpus), *pinned)


def _mount(path: str, writes: bool) -> str:
    return f"type=bind,source={path},target={path}{'' if writes else ',readonly'}"


def exec_command(
    runtime: str, name: str, command: Iterable[str], env: Mapping[str, str], *, tty: bool
) -> tuple[str, ...]:
    """The command that executes another one in a container that runs, as its user and in its
    directory.
    """
    variables = (word for key, value in env.items() for word in ("--env", f"{key}={value}"))
    return (
        runtime,
        "exec",
        "--interactive",
        *(("--tty",) if tty else ()),
        *variables,
        name,
        *command,
    )


def pull_command(runtime: str, image: str) -> tuple[str, ...]:
    """What it prints is standard error: standard output is the task's."""
    script = 'echo "iris: pulls image $3" >&2; exec "$1" pull "$2$3" >&2'
    return ("/bin/sh", "-c", script, "pull", runtime, RUNTIMES[runtime].registry, image)


def has_command(runtime: str, image: str) -> tuple[str, ...]:
    """Succeeds where the image is on the host."""
    return (runtime, "image", "inspect", "--format", "{{.Id}}", image)


def list_command(runtime: str, label: str) -> tuple[str, ...]:
    """Prints the names of a worker's containers, also of those that have ended."""
    return (
        runtime,
        "ps",
        "--all",
        "--filter",
        f"label={WORKER_LABEL}={label}",
        "--format",
        "{{.Names}}",
    )


def inspect_command(runtime: str, name: str) -> tuple[str, ...]:
    """Prints what `read_state` reads."""
    return (runtime, "inspect", "--type", "container", "--format", _STATE, name)


def remove_command(runtime: str, names: Iterable[str]) -> tuple[str, ...]:
    """Kill and remove containers, with the volumes that their images declare."""
    return (runtime, "rm", "--force", "--volumes", *RUNTIMES[runtime].at_once, *names)


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What a runtime says of a container.

    Attributes:
        ended: it ran, and has ended with ``exit_code``. out_of_memory: a process of it was killed
            for its limit.
    """

    ended: bool
    exit_code: int
    out_of_memory: bool


def read_state(text: str) -> ContainerState | None:
    """What `inspect_command` printed; None: nothing of use."""
    words = text.split()
    if len(words) != len(_STATE.split()) or not words[1].lstrip("-").isdigit():
        return None
    return ContainerState(words[0] in ("exited", "stopped"), int(words[1]), words[2] == "true")


def env_lines(env: Mapping[str, str]) -> str:
    """The file of a container's variables; no value has several lines, which a job with an image
    may not have.
    """
    return "".join(f"{key}={value}\n" for key, value in env.items())
