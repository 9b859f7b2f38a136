"""Runs a service as a process: settings, logs, signals, draining, and exit on an error.

    async def main(service: Service[StateSettings]) -> None:
        connection = await service.connect()
        ...
        await service.stop.wait()

    if __name__ == "__main__":
        run_service("state", StateSettings, main)

TERM or INT sets ``stop`` and the main function shuts down in order; a second signal does not wait.
An uncaught exception in the main function, a task of `Service.spawn` or a callback ends the process
with a non-zero code: the journal rebuilds its state. Out of scope: what a service does. Source:
docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from iris_bus.contract import DamagedCommit, Fenced, Message, RecordsLost, Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_bus.servers.bus_facts import ClientName
from iris_core import codec
from iris_core.access.roles import hears
from iris_core.messages.processes import ReplicaInfo, ServiceInfo
from iris_core.subjects import DESCRIBE, is_inbox
from iris_service import log_lines, notify
from iris_service.certificate import expiries_s
from iris_service.child import DAMAGED, MISUSED
from iris_service.notify import Notifier
from iris_service.observing import CollectorGuard, GuardedRegistry
from iris_service.process_settings import FleetSettings, NatsSettings, RunSettings
from iris_service.settings import BadSetting, Settings, keys_of, load
from iris_service.telemetry import MetricsServer, ServiceCollector
from iris_service.tracing import Tracer
from iris_service.version import VERSION

log = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

OK = 0
FAILED = 1
_READY_LOOK_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Why a listener may be unable to accept a connection for a while."""
_EXHAUSTED_LOG_S = 10.0
LAST_WORDS_S = 5.0
"""How long its tasks may take to end once a service has been told to end."""
_GC_YOUNG = 50_000
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 16 << 20
_LARGE_BYTES = 1 << 20
"""More than a read of a socket, which is made and freed for each message."""


async def _no_replica() -> ReplicaInfo | None:
    return None


class Service(Generic[S]):
    """A running process as its main function sees it.

    Attributes:
        name: "state", "scheduler", "worker", "gateway", "proxy", "provisioner" or "notifier".
        settings: the service's own section. fleet: the section ``[fleet]`` of a service that reads
            it.
        stop: set when the process should end; every wait also waits for this.
        started: whether the main function has announced itself; until then a stop cancels it.
        configuration: all settings with their origins, as text. file: the `iris.toml` that was
            read; empty: none.
        replica_info: what the state service adds when this process describes itself; raises
            Unavailable.
        tokens: what a gateway adds there.
        disks, certificates: paths that its metrics watch.
        tracer: makes spans when ``run.otlp_endpoint`` is set.
        guard: runs what only looks at this process, so that its failures end nothing.
    """

    def __init__(self, name: str, settings: S, nats: NatsSettings, run: RunSettings) -> None:
        self.name = name
        self.settings = settings
        self.nats = nats
        self.run = run
        self.fleet = FleetSettings()
        self.stop = asyncio.Event()
        self.id = uuid.uuid4().hex[:12]
        self.started_ms = time.time_ns() // 1_000_000
        self.configuration = ""
        self.file = ""
        self.replica_info: Callable[[], Awaitable[ReplicaInfo | None]] = _no_replica
        self.tokens: Callable[[], str] = str
        self.disks = list(run.disks)
        self.certificates = [path for path in (nats.tls_cert,) if path]
        self.tracer = Tracer(name, run.otlp_endpoint)
        self.guard = CollectorGuard()
        self._notifier = Notifier(os.environ)
        self._connection: JetStreamConnection | None = None
        self._metrics: MetricsServer | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started = False
        self._exhausted_s = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def connect(self) -> JetStreamConnection:
        """Connect to NATS as the settings say; losing the connection for good ends the process.
        Raises Unavailable.
        """
        self._connection = await connect(
            self.nats.url,
            name=str(ClientName(self.name, VERSION, self.run.cluster, self.id)),
            credentials=self.nats.credentials(),
            replicas=self.nats.replicas,
            table=self.nats.streams(),
            retry_for_s=self.nats.retry_for_s,
            on_lost=self.fail,
        )
        if hears(self.name, DESCRIBE):
            await self._connection.bus.subscribe(DESCRIBE, self._asked_to_describe)
        return self._connection

    def private_paths(self) -> list[str]:
        """The files and directories with the settings and keys of this process."""
        nats = self.nats
        found = (
            self.file,
            nats.nkey_seed,
            nats.tls_key,
            os.environ.get("CREDENTIALS_DIRECTORY", ""),
        )
        return [os.path.abspath(path) for path in found if path]

    def _asked_to_describe(self, message: Message) -> None:
        if is_inbox(message.reply):
            self.spawn(self._describe(message.reply))

    async def _describe(self, reply: str) -> None:
        """Answer who this process is. Without an answer of the stores it says nothing this time."""
        assert self._connection is not None
        with self.guard.surviving("description"), contextlib.suppress(Unavailable):
            replica = await self.replica_info()
            info = ServiceInfo(
                service=self.name,
                id=self.id,
                version=VERSION,
                host=socket.gethostname(),
                pid=os.getpid(),
                started_ms=self.started_ms,
                configuration=self.configuration,
                replica=replica,
                tokens=self.tokens(),
                now_ms=time.time_ns() // 1_000_000,
                certificates=expiries_s(self.certificates),
            )
            self._connection.bus.publish(reply, codec.pack(info))

    def show_itself(self, registry: GuardedRegistry) -> None:
        """Add to ``registry`` what every process shows."""
        self.guard = registry.guard
        paths = self.disks, self.certificates
        registry.register(ServiceCollector(self.name, lambda: self._connection, *paths))

    async def serve_metrics(
        self, registry: GuardedRegistry, ready: Callable[[], bool] = lambda: True
    ) -> int:
        """Serve ``/metrics``, ``/healthz`` and ``/readyz`` on the address ``run.metrics``; returns
        the port, 0 when not served.

        The same answer of ``ready`` goes to systemd. Raises OSError when the address is in use.
        """
        self.announce(ready)
        if not self.run.metrics:
            return 0
        self.show_itself(registry)
        self._metrics = MetricsServer(registry, ready)
        await self._metrics.start(self.run.metrics)
        log.info("metrics are served", extra={"port": self._metrics.port})
        return self._metrics.port

    def announce(self, ready: Callable[[], bool] = lambda: True) -> None:
        """From now on a stop waits until the main function has drained; before, there is nothing to
        drain.

        Tells systemd as soon as this process is ready, and then that its loop turns.
        """
        self.started = True
        if self._notifier:
            self.spawn(self._keep_notified(ready))

    async def _keep_notified(self, ready: Callable[[], bool]) -> None:
        while not self.guard.read("ready", ready, otherwise=False):  # noqa: ASYNC110 - has no event
            await asyncio.sleep(_READY_LOOK_S)
        self._notifier.send(notify.READY)
        while self._notifier.interval_s:
            self._notifier.send(notify.ALIVE)
            await asyncio.sleep(self._notifier.interval_s)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` concurrently with the main function. Its exception ends the process; the end
        of the process cancels it.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """End the process with ``error``."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def play(self, main: Callable[[Service[S]], Awaitable[None]]) -> None:
        """Run ``main`` until it returns, or until the first failure, which is raised."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._uncaught)
        playing = asyncio.ensure_future(main(self))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, playing)
        try:
            await asyncio.wait({playing, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                await playing
            else:
                await self._failure
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            self._failure.cancel()
            await _end([playing, *self._tasks])
            await self._tidy()

    async def _tidy(self) -> None:
        if self._metrics is not None:
            await self._metrics.close()
        await asyncio.to_thread(self.tracer.close)

    def _signalled(self, playing: asyncio.Future[None]) -> None:
        if self.stop.is_set():
            log.warning("asked again to stop, not waiting any longer")
            playing.cancel()
            return
        log.info("stopping")
        self._notifier.send(notify.STOPPING)
        self.stop.set()
        asyncio.get_running_loop().call_later(
            self.run.drain_s if self.started else 0.0, playing.cancel
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.fail(task.exception() or RuntimeError("a task ended"))

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in _EXHAUSTED:
            self._say_exhausted(error, loop.time())
        elif isinstance(error, BaseException):
            self.fail(error)
        else:
            loop.default_exception_handler(context)

    def _say_exhausted(self, error: OSError, now_s: float) -> None:
        """Nobody can be accepted now; asyncio looks again every second. Those who are connected are
        served, so that is no reason to end.
        """
        if now_s >= self._exhausted_s:
            self._exhausted_s = now_s + _EXHAUSTED_LOG_S
            log.error("no connection can be accepted: %s; raise LimitNOFILE", error.strerror)


def run_service(
    name: str,
    kind: type[S],
    main: Callable[[Service[S]], Awaitable[None]],
    argv: Sequence[str] | None = None,
    flags: Mapping[str, str] = MappingProxyType({}),
    reads_fleet: bool = False,
) -> None:
    """Run the service ``name`` until it ends, then exit with 0, 1 after a failure, 2 for settings
    that cannot be used, 65 for stored data that is damaged.

    Args:
        name: also the service's section in `iris.toml`.
        kind: the struct of that section.
        main: the service; returns when it has drained.
        argv: ``--config FILE``, ``--set SECTION.KEY=VALUE`` and ``--show-config``; the process's
            own when None.
        flags: keys of the section that have an option of their own, and what they mean.
        reads_fleet: it reads the section ``[fleet]`` too.
    """
    options = _options(name, kind, argv, flags)
    try:
        settings = read_settings(options.config, options.set)
        if options.show_config:
            sys.stdout.write(show_config(settings, name, kind, reads_fleet) + "\n")
            sys.exit(OK)
        own = settings.section(name, kind)
        nats = settings.section("nats", NatsSettings)
        run = settings.section("run", RunSettings)
        fleet = settings.section("fleet", FleetSettings) if reads_fleet else FleetSettings()
        settings.check_files(name, kind)
        settings.check_files("nats", NatsSettings)
    except BadSetting as error:
        sys.stderr.write(f"iris {name}: {error}\n")
        sys.exit(MISUSED)
    log_lines.set_up(name, run.log_level, run.log_style)
    if run.gc == "quiet":
        quiet_gc()
    shown = show_config(settings, name, kind, reads_fleet)
    sys.exit(
        asyncio.run(
            _play(
                name,
                own,
                nats,
                run,
                fleet=fleet,
                shown=shown,
                file=config_path(options.config),
                main=main,
            )
        )
    )


async def _play(
    name: str,
    own: S,
    nats: NatsSettings,
    run: RunSettings,
    *,
    fleet: FleetSettings,
    shown: str,
    file: str,
    main: Callable[[Service[S]], Awaitable[None]],
) -> int:
    service = Service(name, own, nats, run)
    service.fleet = fleet
    service.configuration = shown
    service.file = file
    try:
        await service.play(main)
    except asyncio.CancelledError:
        if service.started:
            log.error("ended before it had drained")
            return FAILED
    except BadSetting as error:
        log.critical("%s", error)
        return MISUSED
    except DamagedCommit as error:
        log.critical("%s; see `iris admin verify`, mend it with `iris admin repair`", error)
        return DAMAGED
    except RecordsLost as error:
        log.critical("%s", error)
        return DAMAGED
    except Unavailable as error:
        log.critical("%s", error)
        return FAILED
    except Fenced as error:
        log.warning("another process has taken over; ending: %s", error)
        return FAILED
    except Exception:
        log.critical("ended by an error", exc_info=True)
        return FAILED
    return OK


def config_path(config: str) -> str:
    """The `iris.toml` to read; empty: none."""
    return config or os.environ.get("IRIS_CONFIG", "")


def read_settings(config: str, given: Sequence[str] = ()) -> Settings:
    """The settings of this process: ``config``, else ``IRIS_CONFIG``, else no file. Raises
    BadSetting.
    """
    path = config_path(config)
    return load(Path(path) if path else None, os.environ, given)


def show_config(
    settings: Settings, name: str, kind: type[msgspec.Struct], reads_fleet: bool = False
) -> str:
    """Every setting of a service with its origin, as TOML. Raises BadSetting."""
    sections: list[tuple[str, type[msgspec.Struct]]] = [
        (name, kind),
        ("nats", NatsSettings),
        ("run", RunSettings),
        *([("fleet", FleetSettings)] if reads_fleet else []),
    ]
    return "\n\n".join(settings.show(section, struct) for section, struct in sections)


def quiet_gc() -> None:
    """Collect rarely, and exempt the objects that exist now: scanning millions of live records
    frees nothing.

    Call it again after a snapshot has been loaded: what was exempt and is garbage now is freed.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_YOUNG, 20, 100)


def return_freed_blocks() -> None:
    """Have large blocks returned to the system when they are freed.

    The C library's own limits grow with use: it keeps up to 64 MiB by itself, and all freed blocks
    below one in use. Without `mallopt` nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _options(
    name: str, kind: type[msgspec.Struct], argv: Sequence[str] | None, flags: Mapping[str, str]
) -> argparse.Namespace:
    keys = ", ".join(keys_of(kind))
    meaning = f"Keys of [{name}]: {keys}. What each means: docs/configuration.md; their values: --show-config."
    parser = argparse.ArgumentParser(prog=f"iris server {name}", epilog=meaning)
    parser.add_argument("--config", default="", metavar="FILE", help="an iris.toml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="wins over all else"
    )
    parser.add_argument(
        "--show-config", action="store_true", help="print every setting with its origin, and end"
    )
    for key, meaning in flags.items():
        setting = partial("{}.{}={}".format, name, key)
        parser.add_argument(
            f"--{key}", dest="set", action="append", type=setting, metavar="N", help=meaning
        )
    return parser.parse_args(argv)


def shared(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Work for whoever shields it. When nobody waits for it any more its exception is of no
    interest; asyncio would report it as one that nobody has caught, which ends a service.
    """
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _end(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Cancel the tasks that still run and wait a moment for their cleanup."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=LAST_WORDS_S)
    for task in tasks:
        with contextlib.suppress(BaseException):
            task.result()
