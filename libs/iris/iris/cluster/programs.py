"""The processes of a local cluster, from its settings.

Pure. Every worker represents a host; a slice of n VMs is n workers with the slice's attributes.
Source: docs/operating.md#one-machine, docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iris.cluster.paths import ClusterPaths
from iris.cluster.process import ISOLATED
from iris.cluster.settings import ClusterSettings, read_replicas, read_slices
from iris_core.access.roles import login
from iris_core.placement.constraints import TPU_TOPOLOGY, TPU_VM_COUNT
from iris_core.placement.topology import Topology
from iris_core.spec.jobs import Attribute
from iris_core.units import BYTES, CORES, counted
from iris_service.child import Program
from iris_service.run import LAST_WORDS_S

_STOP_S = {"worker": 12.0}
_SERVED_LAST = ("gateway", "provisioner", "notifier")
"""Services whose metrics are at the gateway's own address, or behind those of all workers."""
_STOPS_SOON_S = 6.0


@dataclass(frozen=True, slots=True)
class HostProgram:
    """One simulated host: its worker's id, attributes and chips.

    ``accelerators``: its part of this machine's, as ``[worker] accelerators``. ``chips``: simulated
    ones; None: what there are.
    """

    worker: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    chips: int | None = None
    accelerators: str = "none"


@dataclass(frozen=True, slots=True)
class ClusterPrograms:
    """The inputs from which each process' program is made.

    Attributes:
        http: where the gateway listens, its port decided. proxy: where the proxy does.
        config: the `iris.toml` every service reads, if any.
        environ: of this process; services inherit it. memory_bytes, cores: of this machine.
        metrics: ``host:port`` where a process serves its metrics, by the names of `served`; empty:
            nowhere.
        proxies: processes that serve the proxy's address together. drain_s: how long a proxy may
            take to end.
        token_file: the gateway's, when it is made here; None: it is another one, or there is none.
        withheld: settings of the proxy: whose tokens the gateway accepts, so that services do not
            receive them.
        nats_server: the program of the NATS server; empty: the one that is found.
        attributes, accelerators: of ``[worker]``, as far as that says.
    """

    paths: ClusterPaths
    settings: ClusterSettings
    http: str
    proxy: str
    config: Path | None
    environ: Mapping[str, str]
    memory_bytes: int
    cores: int = 1
    metrics: Mapping[str, str] = field(default_factory=dict)
    proxies: int = 1
    drain_s: float = 30.0
    token_file: Path | None = None
    withheld: Mapping[str, str] = field(default_factory=dict)
    nats_server: str = ""
    attributes: tuple[str, ...] = ()
    accelerators: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def proxy_url(self) -> str:
        return f"http://{self.proxy}"

    def hosts(self) -> list[HostProgram]:
        """CPU hosts first, then slice by slice."""
        count = self.settings.workers
        hosts = [
            HostProgram(f"worker-{number}", accelerators=f"{number + 1}/{count}")
            for number in range(count)
        ]
        for number, topology in enumerate(read_slices(self.settings.tpu)):
            hosts += slice_hosts(f"slice-{number}", topology)
        return hosts

    def host_millis(self) -> int:
        """Millicores of each host."""
        share = max(1000, self.cores * 1000 // max(1, len(self.hosts())))
        return round(self.settings.worker_cpu * 1000) or share

    def host_memory(self) -> int:
        """Bytes of each host."""
        return self.settings.worker_memory or self.memory_bytes // max(1, len(self.hosts()))

    def oversubscribed(self) -> list[str]:
        """What the hosts declare together beyond what this machine has, each in a sentence."""
        hosts = len(self.hosts())
        has = (
            (CORES, self.host_millis(), self.cores * 1000, "cores"),
            (BYTES, self.host_memory(), self.memory_bytes, "memory"),
        )
        less = "tasks may get less than they request"
        return [
            f"{counted(hosts, 'host')} of {unit.show(each)} {word} on a machine of {unit.show(there)}: {less}"
            for unit, each, there, word in has
            if hosts * each > there
        ]

    def programs(self, nats_url: str) -> list[Program]:
        """Every process but the bus."""
        kept = [self._service(service, name, nats_url) for service, name in self._services()]
        return [*kept, *self._workers(nats_url)]

    def served(self) -> list[str]:
        """The names of the processes that serve metrics on an address of their own: all but the
        gateway.
        """
        of_services = self._services()
        services = [name for service, name in of_services if service not in _SERVED_LAST]
        last = [name for service, name in of_services if service in ("provisioner", "notifier")]
        return [*services, *(host.worker for host in self.hosts()), *last]

    def _services(self) -> list[tuple[str, str]]:
        return [
            (service, service if count == 1 else f"{service}-{number}")
            for service, count in {
                **read_replicas(self.settings.replicas),
                "proxy": self.proxies,
            }.items()
            for number in range(count)
        ]

    def _service(self, service: str, name: str, nats_url: str) -> Program:
        given: dict[str, dict[str, object]] = {
            "state": {
                "run.disks": self.paths.data,
                **({} if self.settings.auth else {"state.task_token_s": 0}),
            },
            "gateway": {
                "gateway.http": self.http,
                "gateway.proxy_url": self.proxy_url,
                **({"gateway.token_file": self.token_file} if self.token_file else {}),
            },
            "proxy": {
                "proxy.http": self.proxy,
                "proxy.workers": 1,
                "proxy.reuse_port": self.proxies > 1,
                "proxy.discovery_file": self.paths.discovery,
                **({"proxy.token_file": self.token_file} if self.token_file else {}),
                **self.withheld,
            },
        }
        given["provisioner"] = self._provisioner()
        given["notifier"] = {"notifier.url": self.url}
        return self._program(service, name, given.get(service, {}), nats_url)

    def _provisioner(self) -> dict[str, object]:
        confined = [] if self.settings.sandbox else ["sandbox=off", "run_as=worker"]
        return {
            "provisioner.keys": self.paths.keys.directory,
            "provisioner.wanted_keys": self.paths.wanted_keys,
            "provisioner.data": self.paths.fleet,
            "provisioner.gateway_url": self.url,
            "provisioner.worker": ",".join(["address=127.0.0.1", *confined]),
        }

    def _workers(self, nats_url: str) -> Iterator[Program]:
        for host in self.hosts():
            given = worker_settings(host, self)
            yield self._program(
                "worker", host.worker, given, nats_url, kept=self.settings.restart_workers
            )

    def _program(
        self, service: str, name: str, given: Mapping[str, object], nats_url: str, kept: bool = True
    ) -> Program:
        address = self.metrics.get(name, "")
        argv = [sys.executable, *ISOLATED, "-m", f"iris_{service}"]
        argv += ["--config", str(self.config)] if self.config else []
        given = {"nats.nkey_seed": self.paths.keys.path(login(service, name).label), **given}
        for key, value in {**given, **({"run.metrics": address} if address else {})}.items():
            argv += ["--set", f"{key}={value}"]
        shown = self.http if service == "gateway" else address
        stop_s = (
            self.drain_s + LAST_WORDS_S
            if service == "proxy"
            else _STOP_S.get(service, _STOPS_SOON_S)
        )
        metrics = f"http://{shown}/metrics" if shown else ""
        return Program(
            service, name, argv, self._env(nats_url), kept=kept, metrics=metrics, stop_s=stop_s
        )

    def _env(self, nats_url: str) -> dict[str, str]:
        """The environment of a service, in which tasks find `iris`."""
        programs = str(Path(sys.executable).parent)
        return {
            **self.environ,
            "PATH": f"{programs}:{self.environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}",
            "IRIS_NATS_URL": nats_url,
            "IRIS_DATA": str(self.paths.data),
        }


def slice_hosts(name: str, topology: Topology) -> list[HostProgram]:
    """One host per VM of a slice, in the order of their worker ids."""
    return [
        HostProgram(
            f"{name}-w{number}",
            {
                "tpu-name": name,
                "tpu-worker-id": number,
                TPU_TOPOLOGY: topology.variant,
                TPU_VM_COUNT: topology.vm_count,
                "device-type": "tpu",
                "device-variant": topology.variant,
            },
            topology.chips_per_vm,
        )
        for number in range(topology.vm_count)
    ]


def worker_settings(host: HostProgram, programs: ClusterPrograms) -> dict[str, object]:
    """The settings of one worker besides the common ones. What is left out is as ``[worker]``
    says, or found by the worker.
    """
    simulated = [f"{key}={value}" for key, value in host.attributes.items()]
    return {
        "worker.id": host.worker,
        "worker.data": programs.paths.worker(host.worker),
        "worker.gateway_url": programs.url,
        "worker.address": "127.0.0.1",
        "worker.cpu_millis": programs.host_millis(),
        "worker.memory_bytes": programs.host_memory(),
        **({} if host.chips is None else {"worker.chips": host.chips}),
        **(
            {"worker.attributes": ",".join([*programs.attributes, *simulated])} if simulated else {}
        ),
        **({} if programs.accelerators else {"worker.accelerators": host.accelerators}),
        **(
            {}
            if programs.settings.sandbox
            else {"worker.sandbox": "off", "worker.run_as": "worker"}
        ),
    }
