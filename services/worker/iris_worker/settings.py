"""The section ``[worker]`` of `iris.toml`, and ``IRIS_WORKER_<KEY>`` in the environment. Shapes
only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from iris_core import codec
from iris_core.limits import (
    ATTEMPTS,
    WORKER_BYTES,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import DeclaredCapacity
from iris_service.listening import check_url
from iris_service.settings import BadSetting, ReadFile
from iris_worker.limits import ArtifactLimits, BundleLimits, EnvironmentLimits, LogLimits


class CheckSettings(msgspec.Struct, frozen=True):
    """A command that says whether this host can run tasks.

    Attributes:
        command: the program and its arguments; it runs as the worker's user, outside of sandboxes.
            Exit code 0: the host is well. Any other, and one that cannot be started: it is
            DEGRADED, with the last line of the output as the reason, until the command passes.
                Empty: there is no check.
        interval_s: from the end of one check to the next, while the host is idle or the check
            fails.
        timeout_s: how long one check may take; it is then killed, and has failed.
        when: "start": before a worker that has started gets tasks. "idle": at intervals while no
            task runs here. "after_failure": before the failure of an attempt is reported; while the
            check fails, it is charged to the host. "before_gang": before a member of a gang is
            prepared, which waits for it. While the check fails it runs at intervals in any case.
    """

    command: tuple[str, ...] = ()
    interval_s: PositiveFloat = 60.0
    timeout_s: PositiveFloat = 30.0
    when: tuple[Literal["start", "idle", "after_failure", "before_gang"], ...] = (
        "start",
        "idle",
        "after_failure",
    )


class WorkerSettings(DeclaredCapacity, frozen=True):
    """One host, real or simulated.

    Attributes:
        id: this worker's name; empty: the host's name.
        data: its directory, one per worker.
        gateway_url: the value of IRIS_GATEWAY_URL in tasks.
        address: the address at which other hosts reach this one; empty: the local address of its
            connection to NATS.
        attributes: ``key=value`` each; they override detected ones.
        accelerators: which of those of this machine this worker offers: "all", "none", or ``1/2``, the
            first half, where several workers share a machine.
        detect: whether to add detected attributes (os, arch, accelerators, and what the VM's
            metadata says).
        metadata_url: the VM's metadata server, for attributes and notices, or ``file:`` with the path
            of a file that has its answer; "auto": Google's where this is a VM of Google; empty: none.
        max_attempts: tasks that may be placed here at a time, whatever they ask for.
        task_ports: FIRST-LAST, the ports that tasks with ``--port`` are given. The kernel may give
            a port that it also uses for outgoing connections (``net.ipv4.ip_local_port_range``) to
            another process before a task listens.
        heartbeat_interval_s: interval of heartbeats.
        pause_s: a longer stall of this process makes it doubt its orders; a longer stall of its
            launcher is a fault of this host.
        fresh_s: how old contact with the state service may be when something is started.
        report_gap_s: between reports when very many tasks come and go; a few go at once after a
            rest.
        report_timeout_s: for one report to be committed, before it is sent again; the first order
            of a new leader ends that wait.
        log_timeout_s: how long an attempt's end waits until its output is stored while the state
            service can be reached; while it cannot, the end waits with its output. The result of a
            call is waited for without an end.
        stop_grace_s: between TERM and KILL when the worker itself decides.
        timeout_slack_s: how long past its timeout an attempt may run before this worker ends it
            without an order.
        run_as: whose user tasks run as: "worker", the name of an account, "pool:FIRST-LAST" with
            user ids, one for each task at a time, or "submitter", see ``accounts``. Empty: a pool
            where the worker is root, else "worker". No two workers of a host have a user of a pool
            in common; "pool:FIRST-LAST/COUNT" is for several, each of which takes COUNT users.
        accounts: ``user=account`` each: the account of this host for the tasks of a submitting
            user.
        sandbox: "auto" confines tasks with bubblewrap where that works, "required" ends a worker
            where it does not, "off" never does.
        bubblewrap: path of the `bwrap` program.
        abstract_sockets: those without a file, by which confined tasks could reach each other.
            "scoped" keeps each task to its own where the kernel can (Linux 6.12); "network" gives
            each, in its sandbox, a network with nothing but loopback; "shared" leaves them as they
            are.
        binds: further paths that confined tasks see, for example ``/data`` or, read-only,
            ``/mnt/models:ro``.
        cgroups: run each task in a control group of its own, where the host lets us.
        limit_memory: hold a task to the memory it requested: "cgroup" where control groups limit
            memory, elsewhere by samples of what its processes hold, once a second; "rlimit"
            elsewhere each of its processes by the address space it may write to; "off" nowhere.
        pids_limit: processes and threads of one task, where control groups limit them or it has a
            user, or a sandbox without root, of its own; 0: no limit. The default is a quarter of
            what the smallest Linux has for all of a host.
        require_limits: end a worker whose host does not limit memory, processors and processes of
            tasks. "auto": where the worker gives tasks other users than its own, unless `cgroups`
            or `limit_memory` say that they are not to be limited.
        restored_calls: whether the process of a call of a map puts its memory back and makes
            others: "on" where the host can; "checked" the same, and compares all of it with what
            it was, which costs milliseconds a call, and logs a difference; "off", it makes no
            other.
        core_bytes: the largest core file of a task.
        log_bytes_per_s: rate at which one attempt's output is sent while it runs; what it prints
            faster waits on disk.
            0: what is beyond the burst is sent at its end.
        log_burst_bytes: output sent at once before that rate holds.
        log_attempt_bytes: of one attempt's output, what is kept; the rest is dropped but for its
            last lines. A worker holds as much on disk for an attempt, no more.
        failed_starts_limit: starts in a row that fail for a fault of the host, after which it is
            DEGRADED; 0: none are counted.
        failed_starts_retry_s: how long it is then DEGRADED before a trial start, and after each
            that fails.
        check: what says whether this host can run tasks.
        bundle_bytes: size of one unpacked bundle.
        bundle_entries: number of files of one unpacked bundle.
        bundles_kept: unpacked bundles kept on disk.
        bundles_at_once: downloads and copies under way at a time, half of them for one user.
        build_timeout_s: for building one environment or pulling one image; shorter than
            preparing_timeout_s of [state].
        environments_kept: built environments kept on disk, beside those of live attempts.
        environments_bytes: their size.
        container_runtime: what runs tasks with an image: "docker" or "podman" where it answers,
            "auto" for the first of these that does, or "none".
        container_runtime_interval_s: how often to look for the container runtime.
        artifact_bytes: size of an output directory (`--output`); a larger one is not kept.
        artifact_entries: number of its files.
        artifact_timeout_s: how long an attempt's end waits until that is stored. The large result
            of a call is waited for without an end.
        artifacts_at_once: output directories that are stored at a time, half of them of one user;
            of small ones, up to 64 KiB, 16 times as many.
        exec_at_once: commands that people execute beside tasks at a time; 0: none are taken.
        exec_idle_s: how long one command may neither read nor print.
        exec_longest_s: how long one command may run.
        terminal_silent_s: how long a task with a terminal goes on while nobody is connected to
            that.
        tunnels_at_once: connections to ports of tasks at a time; each may be idle, and last, as
            long as a command.
        ca_file: the certificate, in PEM, of the authority that signed that of gateway_url, where
            the system does not know it: tasks are given it, and SDK and `iris` in them trust it too.
    """

    id: str = ""
    data: str = "iris-worker"
    gateway_url: str = "http://127.0.0.1:8080"
    address: str = ""
    attributes: tuple[str, ...] = ()
    detect: bool = True
    accelerators: str = "all"
    metadata_url: str = "auto"
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS)] = ATTEMPTS
    task_ports: str = "10000-19999"
    heartbeat_interval_s: PositiveFloat = 5.0
    pause_s: PositiveFloat = 3.0
    fresh_s: PositiveFloat = 10.0
    report_gap_s: NonNegativeFloat = 0.01
    report_timeout_s: PositiveFloat = 5.0
    log_timeout_s: PositiveFloat = 60.0
    stop_grace_s: NonNegativeFloat = 5.0
    timeout_slack_s: PositiveFloat = 30.0
    run_as: str = ""
    accounts: tuple[str, ...] = ()
    sandbox: Literal["auto", "off", "required"] = "auto"
    bubblewrap: str = "bwrap"
    abstract_sockets: Literal["scoped", "network", "shared"] = "scoped"
    binds: tuple[str, ...] = ()
    cgroups: bool = True
    limit_memory: Literal["cgroup", "rlimit", "off"] = "cgroup"
    pids_limit: NonNegativeInt = 8192
    require_limits: bool | Literal["auto"] = "auto"
    restored_calls: Literal["on", "checked", "off"] = "on"
    core_bytes: NonNegativeInt = 0
    log_bytes_per_s: NonNegativeInt = LogLimits().bytes_per_s
    log_burst_bytes: NonNegativeInt = LogLimits().burst_bytes
    log_attempt_bytes: NonNegativeInt = LogLimits().attempt_bytes
    failed_starts_limit: NonNegativeInt = 3
    failed_starts_retry_s: PositiveFloat = 60.0
    check: CheckSettings = CheckSettings()
    bundle_bytes: NonNegativeInt = BundleLimits().bytes
    bundle_entries: NonNegativeInt = BundleLimits().entries
    bundles_kept: PositiveInt = 16
    bundles_at_once: PositiveInt = 4
    build_timeout_s: PositiveFloat = 600.0
    environments_kept: PositiveInt = EnvironmentLimits().count
    environments_bytes: NonNegativeInt = EnvironmentLimits().bytes
    container_runtime: Literal["auto", "docker", "podman", "none"] = "auto"
    container_runtime_interval_s: PositiveFloat = 30.0
    artifact_bytes: NonNegativeInt = ArtifactLimits().bytes
    artifact_entries: NonNegativeInt = ArtifactLimits().entries
    artifact_timeout_s: PositiveFloat = 600.0
    artifacts_at_once: PositiveInt = 8
    exec_at_once: NonNegativeInt = 32
    exec_idle_s: PositiveFloat = 3600.0
    exec_longest_s: PositiveFloat = 43_200.0
    terminal_silent_s: PositiveFloat = 60.0
    tunnels_at_once: NonNegativeInt = 256
    ca_file: ReadFile = ""

    def check_forms(self) -> None:
        """Raises BadSetting for an invalid URL, path or port range. Existence of paths is checked
        at start.
        """
        self.ports()
        number, _, count = self.accelerators.partition("/")
        if self.accelerators not in ("all", "none") and not (
            number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)
        ):
            raise BadSetting(
                f"[worker] accelerators: {self.accelerators!r} is not all, none, or a part such as 1/2"
            )
        if self.check.command and not self.check.when:
            raise BadSetting(
                "[worker] check.when: it names no occasion, so the command would never run"
            )
        if self.metadata_url not in ("", "auto") and not self.metadata_url.startswith("file:/"):
            check_url("worker", "metadata_url", self.metadata_url, ("http",))
        for text in self.binds:
            path, _, mode = text.partition(":")
            if mode not in ("", "ro") or not path.startswith("/"):
                raise BadSetting(f"[worker] binds: {text!r} is not an absolute path, or PATH:ro")

    def ports(self) -> range:
        """The ports that tasks are given. Raises BadSetting."""
        first, _, last = self.task_ports.partition("-")
        if first.isdecimal() and last.isdecimal() and 1024 <= int(first) <= int(last) <= 65_535:
            return range(int(first), int(last) + 1)
        raise BadSetting(
            f"[worker] task_ports: {self.task_ports!r} is not FIRST-LAST, of ports from 1024 to 65535"
        )

    @property
    def root(self) -> Path:
        return Path(self.data).absolute()

    @property
    def log_limits(self) -> LogLimits:
        return LogLimits(self.log_bytes_per_s, self.log_burst_bytes, self.log_attempt_bytes)

    @property
    def environment_limits(self) -> EnvironmentLimits:
        return EnvironmentLimits(self.environments_kept, self.environments_bytes)

    @property
    def artifact_limits(self) -> ArtifactLimits:
        return ArtifactLimits(self.artifact_bytes, self.artifact_entries)

    @property
    def bundle_limits(self) -> BundleLimits:
        return BundleLimits(self.bundle_entries, self.bundle_bytes)


ATTRIBUTE_BYTES = WORKER_BYTES // 2
"""The rest of the limit is for detected attributes, names and addresses."""


class BadAttribute(ValueError):
    """An attribute that is not ``key=value``, or attributes that are too large together."""


def read_attributes(texts: tuple[str, ...]) -> dict[str, Attribute]:
    """``tpu-worker-id=3`` as a key in lower case and a number where it is one. Raises
    BadAttribute.
    """
    found: dict[str, Attribute] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadAttribute(f"an attribute is key=value: {text!r}")
        found[key.strip().lower()] = read_value(value.strip())
    size = len(codec.pack(found))
    if size > ATTRIBUTE_BYTES:
        raise BadAttribute(
            f"the attributes are {size} bytes, at most {ATTRIBUTE_BYTES} are possible"
        )
    return found


def read_value(text: str) -> Attribute:
    """A whole number, a finite number, or the text itself."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if value in (float("inf"), float("-inf")) or value != value or str(value) != text:
            break  # "1e3", "007" and "nan" stay text
        return value
    return text
