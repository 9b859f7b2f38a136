"""The faults of a simulated cluster: each function injects one into a world at a random time.

Out of scope: how often (`Storm`, drawn by `world`), and what must hold all the same (`judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core import codec, subjects
from iris_core.messages.gateway_state import Query
from iris_core.views.queries import ViewQuery
from iris_state.machine.machine import Machine as Judging
from iris_state.machine.quarantine import kind_of
from iris_state.records.inputs import Input, Timer
from iris_state.records.ledger import Ledger
from iris_state.views import KINDS, READS
from tests.sim.people import USER
from tests.support.raising import Planted, raising

if TYPE_CHECKING:
    from tests.sim.world import World

STORM_S = 60.0
SETTLE_S = 10.0
"""So long power loss may take back an event, and longer it may not."""

Fault = Callable[["World"], None]


@dataclass(frozen=True)
class Storm:
    """What may happen in a world.

    Attributes:
        faults: what each strike is one of; one that appears twice comes twice as often.
        least, most: how many strikes there are.
        bad_weather: in so many worlds the links lose, double, shuffle and delay.
    """

    faults: tuple[Fault, ...]
    least: int = 0
    most: int = 14
    bad_weather: float = 0.6


def kill_leader(world: World) -> None:
    world.kill(world.leader_name())


def kill_any(world: World) -> None:
    world.kill(world.victim("state", "scheduler", "w"))


def kill_both_states(world: World) -> None:
    world.kill("state-0")
    world.kill("state-1")


def crash_mid_send(world: World) -> None:
    world.links[world.leader_name()].crash_after = world.rng.randint(0, 6)


def crash_mid_commit(world: World) -> None:
    world.links[world.leader_name()].crash_between_parts = True


def raise_in_judging(world: World, *, timers: bool = False) -> None:
    """The next input (or timer) of the leader that changes so much raises when some of its changes
    stand, or before.
    """
    leader = world.leader()
    if leader is None:
        return
    machine, after = leader.replica.machine, world.rng.choice((-1, 0, 0, 1, 3))

    def judged(one: Input | Timer) -> None:
        if not world.is_stormy:
            del machine._handle
            Judging._handle(machine, one)
            return
        if isinstance(one, Timer) is not timers:
            Judging._handle(machine, one)
            return
        try:
            with raising(machine, after):
                Judging._handle(machine, one)
        except Planted:
            del machine._handle
            world.server.count(f"{kind_of(one)} raised")
            world.planted += 1
            raise

    machine._handle = judged  # type: ignore[method-assign]


def raise_in_timer(world: World) -> None:
    """So does its next timer."""
    raise_in_judging(world, timers=True)


class PlantedQuery(ViewQuery, frozen=True):
    """Raises."""


def raise_in_reading(world: World) -> None:
    """Somebody asks the leader what it raises at."""

    def read(ledger: Ledger, query: PlantedQuery) -> None:
        world.server.count("query raised")
        world.planted += 1
        raise Planted

    READS[PlantedQuery], KINDS["planted"] = read, PlantedQuery
    bus = world.links["people"].bus
    bus.publish(subjects.STATE_QUERY, codec.pack(Query("planted", {}, USER)), reply=bus.new_inbox())


def freeze_leader(world: World) -> None:
    world.freeze(world.leader_name(), world.rng.choice((0.3, 1.0, 4.0, 20.0)))


def freeze_before_commit(world: World) -> None:
    """The leader stands still when it has judged its next round and not appended the commit, and
    another may lead.
    """
    name = world.leader_name()
    seconds = world.rng.choice((1.0, 4.0, 20.0))

    def freeze() -> None:
        world.server.count("leader frozen before its commit")
        world.freeze(name, seconds)

    world.links[name].before_append = freeze


def freeze_worker(world: World) -> None:
    world.freeze(world.victim("w"), world.rng.choice((0.3, 4.0, 25.0)))


def stop_worker(world: World) -> None:
    world.stop(world.victim("w"))


def stop_half(world: World) -> None:
    """It is killed while it stops, at any point of that."""
    name = world.victim("w")
    process = world.processes[name]
    world.stop(name)
    world.server.at(
        world.rng.random() * 0.3,
        lambda: world.kill(name) if world.processes[name] is process else None,
    )


def deafen(world: World) -> None:
    """A host that goes on beating and hears no order."""
    world.server.count("host deaf")
    world.machines[world.victim("w")].unreachable_until_s = world.server.now + world.rng.choice(
        (3.0, 15.0, STORM_S)
    )


def reboot(world: World) -> None:
    name = world.victim("w")
    if world.processes[name].alive:
        world.kill(name)
        world.machines[name].reboot(world.server.now)
        world.server.count("host rebooted")


def lose_for_good(world: World) -> None:
    """A host never comes back; what is left is enough for every job."""
    host = world.victim("w")
    if world.can_spare(host):
        world.server.count("host gone for good")
        machine = world.machines[host]
        world.take_away(host)
        machine.reboot(world.server.now)


def restart_with_fewer(world: World) -> None:
    """Everything is stopped and starts again, some hosts excepted, of which nobody was told."""
    world.server.count("restarted with fewer workers")
    world.server.crash(1.0)
    for name in list(world.processes):
        if name != "people":
            world.kill(name)
    for host, machine in world.machines.items():
        machine.reboot(world.server.now)
        if host in world.hosts and world.can_spare(host) and world.rng.random() < 0.5:
            world.take_away(host)


def rename(world: World) -> None:
    """A machine gets another name; it has started anew with that, or only its worker has."""
    host = world.victim("w")
    if len(world.hosts) > 1:
        world.server.count("host renamed")
        machine = world.machines[host]
        world.rename(host, f"{host}x")
        if world.rng.random() < 0.5:
            machine.reboot(world.server.now)


def cut(world: World) -> None:
    name = world.victim("state", "scheduler", "w", "people")
    world.server.count(f"{world.processes[name].kind} cut off")
    world.links[name].cut(world.rng.choice((0.5, 3.0, 20.0)))


def crash_server(world: World) -> None:
    world.server.count("server killed")
    world.server.crash(world.rng.choice((0.2, 2.0, 6.0)))


def power_loss(world: World) -> None:
    """Everything is gone at once, and the newest events with it; processes on hosts too.

    Together with a damaged snapshot, the events of which were lost, that would be more than anybody
    promises.
    """
    world.server.count("power lost")
    world.server.crash(2.0, 0 if world.damaged else world.rng.randint(0, 8), SETTLE_S)
    for name in list(world.processes):
        if name != "people":
            world.kill(name)
    for machine in world.machines.values():
        machine.reboot(world.server.now)


def jump(world: World) -> None:
    name = world.victim("state", "w", "scheduler")
    world.server.count("clock jumped")
    world.processes[name].jump_ms += world.rng.choice(
        (-3_600_000, -5_000, 5_000, 60_000, 3_600_000)
    )


_DAMAGE = b"x" * 20


def damage_snapshot(world: World) -> None:
    """The newest snapshot is damaged, if there is a good one before it: no more is promised than
    the one before.
    """
    objects = world.server.buckets.get("iris-snapshots", {})
    newest = sorted(objects)[-2:]
    if len(newest) == 2 and not any(objects[name][0].endswith(_DAMAGE) for name in newest):
        world.server.count("snapshot damaged")
        world.damaged = True
        data, known = objects[newest[1]]
        objects[newest[1]] = (data[: -len(_DAMAGE)] + _DAMAGE, known)
        kill_both_states(world)  # or nobody would ever read it


FAULTS: tuple[Fault, ...] = (
    kill_leader,
    kill_leader,
    kill_any,
    kill_any,
    kill_both_states,
    crash_mid_send,
    crash_mid_send,
    crash_mid_commit,
    raise_in_judging,
    raise_in_judging,
    raise_in_timer,
    raise_in_reading,
    freeze_leader,
    freeze_leader,
    freeze_before_commit,
    freeze_worker,
    stop_worker,
    stop_worker,
    stop_half,
    deafen,
    deafen,
    reboot,
    lose_for_good,
    restart_with_fewer,
    rename,
    cut,
    cut,
    crash_server,
    power_loss,
    jump,
    damage_snapshot,
    damage_snapshot,
)


EVERYTHING = Storm(FAULTS)
