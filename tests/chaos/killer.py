"""Injects faults: one after the other, chosen at random, into the processes and the network of a
cluster.

With three servers it also changes the leaders of their streams. It ends each pause, partition or
outage after a random time, sometimes before a worker would be LOST and sometimes long after. Out of
scope: how a network is cut (`places`), what has become of the cluster (`recount`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from iris_bus.connection.connection import Credentials
from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_core import subjects
from tests.chaos import maps, moments
from tests.chaos.moments import Moments
from tests.chaos.places import HARMS, Place
from tests.chaos.server import ill_file
from tests.chaos.serving import servers as copies
from tests.support.cluster import Cluster
from tests.support.nats_cluster import NatsCluster, step_down
from tests.support.nats_config import ConfiguredServer
from tests.support.suspend import suspended

_SHORTEST_S, _LONGEST_S = 0.5, 2.5
_AT_ONCE = 5
_LOOK_S = 0.2
_LONG_STATE_S = (5.0, 20.0)
"""For one replica of the state service while nothing is done to the other: an append gives up after
15 s.
"""
_OUTLAST_S = 0.3
"""Longer than an order may be old, and shorter than LOST takes."""
_LONGEST_LOSS_S = 12.0
_ILL_S = (1.0, 9.0)
"""So long a copy fails its probe: it is out of discovery after 1.5 s, and evicted after 3 s
more.
"""
_LONG_PROXY_S = (5.0, 20.0)
"""So long the proxy hears nothing of the routes that come and go."""
_STOP_S = 5.0
"""What is told to stop may still answer for so long."""
_SILENCE_S = (12.0, 16.0)
"""For all servers: longer than a report or a batch of output waits for its answer."""
_STEPS_DOWN = (subjects.LOGS, subjects.LOGS, subjects.JOURNAL, subjects.EVENTS)
_MISSED = (LookupError, ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess, StopIteration)
"""There was nothing to strike."""
_AT_AN_END = ("worker", "state", "nats")
_CLOCKS = ("state", "worker", "scheduler", "gateway", "proxy")
"""Whose clocks are set."""
_SUSPENDED_S = (5.0, 30.0)
_ENDS = ("kill", "stop")
"""KILL and TERM: what ends a service, to be started again."""
_MOMENT_S = 5.0
"""So long an end is waited for."""
_LEADERLESS_S = 5.0
_CLOCK_S = (60.0, 6 * 3600.0)
"""By so much a clock is set, forward or back."""
_ALONE = ("gateway", "nats", "every state")
"""Nothing stands in for these: recovery is counted from the end of a fault that lasts."""


class Strike(NamedTuple):
    """What was done, to which kind of service, and for how many seconds."""

    kind: str
    service: str
    lasts_s: float


@dataclass
class Killer:
    """Strikes until it is told to stop; whatever it did is put right by then.

    Attributes:
        lost_s: after which a worker is LOST. expires_s: after which it takes an order no more.
        probe: returns when the cluster accepts work; timed after each fault.
        any_lost: whether a worker has become LOST.
        ill: the directory of the files that make copies fail their probes.
        servers: three of them, None for the embedded one.
        moments: of the ends of attempts; None: nobody may hear them here. credentials: for the three servers.
        clones: whether these hosts clone calls from templates.
        looks: how often the opening looks for something to strike. On a busy machine looks take
            longer, and so does what is to be there.
        opened: set when one has, or when the opening has given up. wrong: what it has given up, a
            sentence each.
        recoveries: seconds per kind of fault.
        killed: the workers that were killed while they ran something, and when by the wall clock.
        proxy_struck: from when until when the proxy could not answer for what was done to its
            process.
    """

    cluster: Cluster
    places: list[Place]
    lost_s: float
    expires_s: float
    rng: random.Random
    probe: Callable[[], None]
    any_lost: Callable[[], bool]
    ill: Path
    moments: Moments | None
    servers: NatsCluster | None = None
    credentials: Credentials | None = None
    clones: bool = True
    looks: int = 400
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    enough: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    killed: list[tuple[str, float]] = field(default_factory=list)
    proxy_struck: list[tuple[float, float]] = field(default_factory=list)
    _pending: dict[str, tuple[float, Callable[[], None]]] = field(default_factory=dict)

    def run(self) -> None:
        try:
            self._open()
            while not self.enough.is_set():
                with contextlib.suppress(*_MISSED):
                    self._see(self._draw)
                self._rest(self.rng.uniform(_SHORTEST_S, _LONGEST_S))
        finally:
            self.opened.set()
            for name in list(self._pending):
                self._put_right(name)

    def _open(self) -> None:
        """Three workers gone for longer than LOST takes, and others killed, stopped, and without
        orders.

        So that no run is without any of that.
        """
        hosts = self.rng.sample([place for place in self.places if place.is_host], 3)
        for place, strike in zip(
            hosts, (self._cut, self._switch_off, self._freeze_worker), strict=True
        ):
            self._see(
                lambda place=place, strike=strike: strike(place, *self._aim(place, long=True))
            )
        left = [self._kill_busy_worker, self._stop_worker, self._outlast_orders]
        left += self._order_strikes()
        left += [*self._template_strikes(), self._kill_launcher]
        if self.moments is not None:
            left += [self._lose_an_end]
            left += [partial(self._kill_at_an_end, what) for what in _AT_AN_END]
        left += [partial(self._set_clock, service) for service in _CLOCKS]
        left += [
            self._kill_copy,
            self._fail_probe,
            *(partial(self._strike_process, how, "proxy") for how in _ENDS),
        ]
        self._strike_each(left)
        self._strike_each([self._cut_proxy])  # last, for it cannot start without the bus
        for _ in range(self.looks):
            if self.any_lost() or self.enough.is_set():
                break
            self._rest(_LOOK_S)
        self.opened.set()

    def _strike_each(self, left: list[Callable[[], Strike]]) -> None:
        """In this order, but what finds no target lets the others pass."""
        why: dict[str, str] = {}
        for _ in range(self.looks):
            if not left or self.enough.is_set():
                return
            strike = left.pop(0)
            try:
                self._see(strike)
                why.pop(_said(strike), None)
            except _MISSED as error:
                left.append(strike)
                why[_said(strike)] = f"{_said(strike)} ({error!r})"
            self._rest(_LOOK_S)
        if left:
            faults = ", ".join(why.get(_said(strike), _said(strike)) for strike in left)
            self.wrong += [
                f"wrong: {len(left)} faults have found no target in {self.looks} looks: {faults}"
            ]

    def _see(self, strike: Callable[[], Strike]) -> None:
        """Do it, and wait until the cluster accepts work, or until it is enough."""
        began = time.monotonic()
        kind, service, lasts_s = strike()
        self.faults[kind] += 1
        seeing = threading.Thread(target=self.probe, daemon=True)
        seeing.start()
        while seeing.is_alive():
            if self.enough.is_set():
                return
            self._rest(0.02)
        excused = lasts_s if service in _ALONE else 0.0
        self.recoveries[kind].append(max(0.0, time.monotonic() - began - excused))

    def _rest(self, seconds: float) -> None:
        """Pass the time, putting right what is due."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and not self.enough.is_set():
            for name in [name for name, (due, _) in self._pending.items() if due <= now]:
                self._put_right(name)
            self.enough.wait(min(0.02, until - now))

    def _put_right(self, name: str) -> None:
        _, how = self._pending.pop(name)
        how()

    def _draw(self) -> Strike:
        """Something by chance."""
        kinds = ["kill", *_ENDS, "freeze", "network", "network", "network", "host", "host"]
        rare = [
            self._silence,
            self._kill_busy_worker,
            self._stop_worker,
            self._stop_worker,
            self._outlast_orders,
        ]
        rare += [
            self._kill_copy,
            self._kill_copy,
            self._fail_probe,
            self._fail_probe,
            self._cut_proxy,
        ]
        rare += self._template_strikes() * 3 + [self._kill_launcher]
        rare += self._order_strikes() * 2
        if self.moments is not None:
            rare += [self._lose_an_end]
            rare += [partial(self._kill_at_an_end, self.rng.choice(_AT_AN_END))] * 5
        rare += [partial(self._set_clock, self.rng.choice(_CLOCKS))] * 3
        rare += [self._suspend_server] * (2 if self.servers else 0)
        rare += [self._change_leader] * (6 if self.servers else 0)
        what = self.rng.choice([*kinds, *kinds, *rare])
        if not isinstance(what, str):
            return what()
        if what in (*_ENDS, "freeze") or len(self._pending) >= _AT_ONCE:
            return self._strike_process(what)
        hosts = self.rng.random() < 0.5 or what == "host"
        free = [
            place
            for place in self.places
            if place.name not in self._pending and place.is_host == hosts
        ]
        place = self.rng.choice(free or [None])
        if place is None:
            raise LookupError("every service has its trouble already")
        strikes = (
            (self._cut,)
            if what == "network"
            else (self._switch_off, self._freeze_host, self._freeze_worker)
        )
        return self.rng.choice(strikes)(place, *self._aim(place))

    def _silence(self) -> Strike:
        """No server answers anybody."""
        seconds = self.rng.uniform(*_SILENCE_S)
        self._freeze("silence", self._server_pids(), seconds)
        return Strike("silence nats", "nats", seconds)

    def _change_leader(self) -> Strike:
        """A stream has another leader."""
        assert self.servers is not None
        stream = self.rng.choice(_STEPS_DOWN).name
        asyncio.run(self._step_down(self.servers.url, stream))
        return Strike(f"change leader of {stream}", "nats", 0.0)

    async def _step_down(self, url: str, stream: str) -> None:
        with contextlib.suppress(
            Unavailable, AssertionError
        ):  # something is done to the servers already
            connection = await connect(
                url, name="killer", credentials=self.credentials, retry_for_s=2.0
            )
            await step_down(connection, stream, within_s=5.0)
            await connection.close()

    def _server_pids(self) -> list[int]:
        if self.servers is None:
            return self.cluster.pids("nats")
        return [node.process.pid for node in self.servers.nodes if node.process is not None]

    def _kill_server(self, servers: NatsCluster) -> Strike:
        """One of three, which comes back; not while another is away."""
        node = self._free_server(servers)
        node.kill()
        self._pending[node.name] = (time.monotonic() + self.rng.uniform(0.2, 3.0), node.start)
        return Strike("kill -9 nats of three", "nats", 0.0)

    def _free_server(self, servers: NatsCluster) -> ConfiguredServer:
        """One of three, while all are well. Raises LookupError."""
        if {"silence", *(each.name for each in servers.nodes)} & self._pending.keys():
            raise LookupError("a server has its trouble already")
        return self.rng.choice(servers.nodes)

    def _suspend_server(self) -> Strike:
        """One of three, for longer than the others take to notice."""
        assert self.servers is not None
        node = self._free_server(self.servers)
        assert node.process is not None
        self._freeze(node.name, [node.process.pid], self.rng.uniform(*_SUSPENDED_S))
        return Strike("suspend nats of three", "nats of three", 0.0)

    def _kill_at_an_end(self, what: str) -> Strike:
        """Just when an attempt ends: its worker, the leader or NATS."""
        kind = self.rng.choice(moments.KINDS)
        place = self._wait_for_end(kind)
        name = f"kill -9 {what} at {kind}"
        if what == "nats":
            return self._strike_process("kill", "nats")._replace(kind=name)
        if what == "state":
            leader = self.moments.leader if self.moments is not None else 0
            if leader not in self.cluster.pids("state"):
                raise LookupError("nobody leads")
            os.kill(leader, signal.SIGKILL)
            return Strike(name, "state", 0.0)
        self._kill_worker_of(place)
        return Strike(name, "worker", 0.0)

    def _lose_an_end(self) -> Strike:
        """What a call returned is stored, and nobody is there to hear that it has ended; its worker
        and its launcher are gone before anybody is.
        """
        place = self._wait_for_end(self.rng.choice(("result", "artifact")))
        with suspended(self.cluster.pids("supervisor")):
            _signal(self.cluster.pids("state"), signal.SIGKILL)
            self._rest(_LEADERLESS_S)
            launcher = maps.launcher_of(place)
            self._kill_worker_of(place)
            _signal([launcher], signal.SIGKILL)
        return Strike("lose an end", "every state", _LEADERLESS_S)

    def _wait_for_end(self, kind: str) -> Place:
        """The host, without other trouble, on which an attempt ends now. Raises LookupError."""
        assert self.moments is not None
        until_s = time.monotonic() + _MOMENT_S
        while time.monotonic() < until_s and not self.enough.is_set():
            free = {place.name: place for place in self._free_hosts()}
            with contextlib.suppress(LookupError):
                return free[self.moments.next(kind, _LOOK_S, free.__contains__)]
            self._rest(0.0)
        raise LookupError(f"no {kind}")

    def _kill_worker_of(self, place: Place) -> None:
        self.killed.append((place.name, time.time()))
        os.kill(self.cluster.pid_of_worker(place.name), signal.SIGKILL)

    def _set_clock(self, service: str) -> Strike:
        """The wall clock of one place, forward or back, or to what it should be."""
        suits = [
            place
            for place in self.places
            if (place.is_host if service == "worker" else place.name.startswith(service))
        ]
        off_s = self.rng.choice((-1, 1, 1, 0)) * self.rng.uniform(*_CLOCK_S)
        self.rng.choice(suits).set_clock(off_s)
        way = "forward" if off_s > 0 else "back" if off_s < 0 else "right"
        return Strike(f"set clock of {service} {way}", service, 0.0)

    def _strike_process(self, what: str, service: str = "") -> Strike:
        service = service or self.rng.choice(
            ("state", "state", "scheduler", "gateway", "proxy", "worker", "nats")
        )
        if service == "nats" and self.servers is not None:
            return self._kill_server(self.servers)
        pid = self.rng.choice(self.cluster.pids(service) or [0])
        if not pid:
            raise LookupError(service)
        if what == "freeze":
            seconds = self.rng.choice((0.2, 1.0, 3.0))
            self._note_proxy(service, seconds)
            self._freeze(f"process {pid}", [pid], seconds)
            return Strike(f"freeze {service}", service, seconds)
        self._note_proxy(service, _STOP_S)
        os.kill(pid, signal.SIGTERM if what == "stop" else signal.SIGKILL)
        return Strike(f"{'stop' if what == 'stop' else 'kill -9'} {service}", service, 0.0)

    def _note_proxy(self, service: str, seconds: float) -> None:
        if service == "proxy":
            self.proxy_struck.append((time.monotonic(), time.monotonic() + seconds))

    def _cut_proxy(self) -> Strike:
        """It answers on by the routes it knows."""
        place = next(
            place
            for place in self.places
            if place.name == "proxy-0" and place.name not in self._pending
        )
        return self._cut(place, "proxy", self.rng.uniform(*_LONG_PROXY_S), "long")

    def _kill_copy(self) -> Strike:
        """The process of a route."""
        pid = self.rng.choice([*copies(self.ill)] or [0])
        if not pid:
            raise LookupError("no copy runs")
        os.kill(pid, signal.SIGKILL)
        return Strike("kill -9 copy", "copy", 0.0)

    def _fail_probe(self) -> Strike:
        """A route that is ill for a while, perhaps for as long as it lives."""
        ill = [ill_file(self.ill, job) for job in copies(self.ill).values() if job]
        free = [path for path in ill if str(path) not in self._pending]
        path = self.rng.choice(free or [None])
        if path is None:
            raise LookupError("no copy runs that is well")
        seconds = self.rng.uniform(*_ILL_S)
        path.touch()
        self._pending[str(path)] = (time.monotonic() + seconds, path.unlink)
        return Strike("fail probe", "copy", seconds)

    def _cut(self, place: Place, service: str, seconds: float, length: str) -> Strike:
        how = self.rng.choice(HARMS)
        place.harm(how)
        self._pending[place.name] = (time.monotonic() + seconds, place.mend)
        return Strike(f"{how} {service} {length}", service, seconds)

    def _switch_off(self, place: Place, service: str, seconds: float, length: str) -> Strike:
        """Power loss of a host where there can be one."""
        if not place.has_power_switch:
            return self._freeze_host(place, service, seconds, length)
        place.switch_off()
        self._pending[place.name] = (time.monotonic() + seconds, place.switch_on)
        return Strike(f"switch off host {length}", service, seconds)

    def _freeze_host(self, place: Place, service: str, seconds: float, length: str) -> Strike:
        self._freeze(place.name, place.pids(), seconds)
        return Strike(f"freeze host {length}", service, seconds)

    def _freeze_worker(self, place: Place, service: str, seconds: float, length: str) -> Strike:
        """Its tasks run on."""
        self._freeze(place.name, [self.cluster.pid_of_worker(place.name)], seconds)
        return Strike(f"freeze worker {length}", service, seconds)

    def _free_hosts(self) -> list[Place]:
        """Those without trouble, in any order. Raises LookupError when there is none."""
        free = [place for place in self.places if place.is_host and place.name not in self._pending]
        if not free:
            raise LookupError("every host has its trouble already")
        return self.rng.sample(free, len(free))

    def _kill_busy_worker(self) -> Strike:
        """What it ran goes on, and the worker after it adopts that."""
        for place in self._free_hosts():
            pid = self.cluster.pid_of_worker(place.name)
            if place.is_busy():
                self.killed.append((place.name, time.time()))
                os.kill(pid, signal.SIGKILL)
                return Strike("kill -9 busy worker", "worker", 0.0)
        raise LookupError("nothing runs")

    def _order_strikes(self) -> list[Callable[[], Strike]]:
        lossy = [place.proxy for place in self.places if place.proxy is not None]
        return [] if all(proxy.sealed for proxy in lossy) else [self._lose_orders]

    def _template_strikes(self) -> list[Callable[[], Strike]]:
        return [self._kill_template] if self.clones else []

    def _kill_template(self) -> Strike:
        """What was cloned from it goes on."""
        os.kill(self._of_host(maps.template_of), signal.SIGKILL)
        return Strike("kill -9 template", "worker", 0.0)

    def _kill_launcher(self) -> Strike:
        """What it ran goes on, and its exit codes are lost."""
        os.kill(self._of_host(maps.launcher_of), signal.SIGKILL)
        return Strike("kill -9 launcher", "worker", 0.0)

    def _of_host(self, find: Callable[[Place], int]) -> int:
        """A process of some host without trouble. Raises LookupError."""
        for place in self._free_hosts():
            with contextlib.suppress(LookupError):
                return find(place)
        raise LookupError("no host has one")

    def _stop_worker(self) -> Strike:
        """In order: it says goodbye, ends what it runs, and is started again."""
        os.kill(self.cluster.pid_of_worker(self._free_hosts()[0].name), signal.SIGTERM)
        return Strike("stop worker", "worker", 0.0)

    def _lose_orders(self) -> Strike:
        """A worker that is heard, hears everything else, and is told nothing to do."""
        place, proxy = next(
            (place, place.proxy) for place in self._free_hosts() if place.proxy is not None
        )
        seconds = self.rng.uniform(0.5, _LONGEST_LOSS_S)
        proxy.loses_orders = True
        self._pending[place.name] = (
            time.monotonic() + seconds,
            lambda: setattr(proxy, "loses_orders", False),
        )
        return Strike("lose orders", "worker", seconds)

    def _outlast_orders(self) -> Strike:
        """A worker that reads its orders when it may begin nothing of them any more, and was not
        LOST.
        """
        seconds = self.rng.uniform(self.expires_s + _OUTLAST_S, self.lost_s - _OUTLAST_S)
        return self._freeze_worker(self._free_hosts()[0], "worker", seconds, "past its orders")

    def _aim(self, place: Place, *, long: bool | None = None) -> tuple[str, float, str]:
        """What kind of service lives there, for how long to harm it, and whether that is long for a
        worker.
        """
        service = "worker" if place.is_host else place.name.partition("-")[0]
        if place.is_host and (long if long is not None else self.rng.random() < 0.6):
            return service, self.lost_s + self.rng.uniform(2.0, 8.0), "long"
        if (
            service == "state"
            and not long
            and self.rng.random() < 0.25
            and not self._states_in_trouble()
        ):
            return service, self.rng.uniform(*_LONG_STATE_S), "long"
        return service, self.rng.uniform(0.3, 0.6 * self.lost_s), "short"

    def _states_in_trouble(self) -> bool:
        return any(name.startswith("state-") for name in self._pending)

    def _freeze(self, name: str, pids: Iterable[int], seconds: float) -> None:
        frozen = list(pids)
        _signal(frozen, signal.SIGSTOP)
        self._pending[name] = (time.monotonic() + seconds, lambda: _signal(frozen, signal.SIGCONT))


def _said(strike: Callable[[], Strike]) -> str:
    """``kill template``: a fault by the name of the function that does it."""
    words = [getattr(getattr(strike, "func", strike), "__name__", ""), *getattr(strike, "args", ())]
    return " ".join(words).strip("_").replace("_", " ")


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
