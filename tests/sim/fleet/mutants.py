"""Mutants of the decisions about pools, each of which the simulated cloud must detect.

A plant is put into the modules of this process and taken out again. Its docstring says what goes
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from iris_state.fleet import growth, pools
from iris_state.fleet.slices import Scene
from iris_state.records.fleet import sightings
from iris_state.records.fleet.records import HostPool
from iris_state.records.fleet.sightings import ProviderOrder, Sightings
from tests.sim.fleet.play import FleetOutcome, play

Put = Callable[[Any, str, Any], None]
Mutant = Callable[[Put], None]


def a_list_counts_whatever_was_accepted_after_it_began(put: Put) -> None:
    """A list that is a minute old ends what was made since."""
    put(
        Sightings,
        "_ought_to_be_listed",
        lambda self, one, began_ms, policy: one.status not in ("requested", "deleting"),
    )
    put(sightings, "ENOUGH_LISTS", 1)


def draining_does_not_wait_for_what_runs(put: Put) -> None:
    """A slice that an operator drains is deleted at once."""
    put(Scene, "runs", lambda self, one: False)


def a_pool_has_more_slots_than_its_max(put: Put) -> None:
    """Two slices more than allowed are made."""

    free = pools.free_slots

    def more(scene: Scene, pool: HostPool, orphans: set[int]) -> list[int]:
        return [*free(scene, pool, orphans), pool.spec.max, pool.spec.max + 1]

    def wanted(pool: HostPool, has: Any, new: int) -> int:
        return max(pool.spec.min, has.busy + new + pool.spec.buffer)

    put(pools, "free_slots", more)
    put(pools, "_beyond_max", lambda scene: set())
    put(pools, "_withdrawals", lambda scene: iter(()))
    put(pools, "_wanted", wanted)


def refusals_put_nothing_off(put: Put) -> None:
    """A pool without capacity is asked for all that is missing, again and again."""
    put(growth, "put_off", lambda known, *given, **more: known)


def any_number_of_slices_is_given_up_for_failure(put: Put) -> None:
    """A network split is taken for a fleet of dead hosts."""
    put(growth, "may_lose", lambda known, ready, policy, now_ms: 1 << 20)


def nobody_deletes_strangers(put: Put) -> None:
    """What has no record stays for ever."""
    put(pools, "_has_waited", lambda scene, seen: False)


def nobody_adopts_strangers(put: Put) -> None:
    """What runs since before a restore is deleted with its work."""
    put(pools, "_adoptions", lambda scene: iter(()))


def orders_are_sent_once(put: Put) -> None:
    """What was lost on the way is never done."""

    def due(self: Sightings, orders: Any, now_ms: int) -> Iterator[ProviderOrder]:
        for order in orders:
            asked = self.asked.setdefault((order.call, order.name, order.label), sightings.Asked())
            asked.times += 1
            if asked.times == 1:
                yield order

    put(Sightings, "due", due)


def what_is_coming_counts_for_nothing(put: Put) -> None:
    """Each round buys again what the last one bought."""
    put(pools, "_coming", lambda scene: [])


def nothing_is_ever_idle(put: Put) -> None:
    """Slices without work are kept for ever."""
    put(Scene, "idle_since_ms", lambda self, one: 0)


def what_ended_is_not_told_from_what_lives(put: Put) -> None:
    """Something is deleted because another one of its name has ended."""

    def orphans(self: Sightings, fleet: Any) -> Iterator[Any]:
        own = {one.name for one in fleet.slices.values() if one.is_open and one.ready_ms}
        for source, seen in self.seen.items():
            for name, one in seen.items():
                if name not in own:
                    yield source, one

    def recorded(scene: Scene, listed: Any) -> bool:
        return any(one.name == listed.name for one in scene.fleet.slices.values() if one.is_over)

    put(Sightings, "orphans", orphans)
    put(pools, "_was_recorded", recorded)


def deletions_know_no_rate(put: Put) -> None:
    """All that is idle goes at once, also what the next burst would use."""
    put(growth, "may_delete", lambda spec, known, now_ms: 1 << 20)


MUTANTS: tuple[Mutant, ...] = (
    a_list_counts_whatever_was_accepted_after_it_began,
    draining_does_not_wait_for_what_runs,
    a_pool_has_more_slots_than_its_max,
    refusals_put_nothing_off,
    any_number_of_slices_is_given_up_for_failure,
    nobody_deletes_strangers,
    nobody_adopts_strangers,
    orders_are_sent_once,
    what_is_coming_counts_for_nothing,
    nothing_is_ever_idle,
    what_ended_is_not_told_from_what_lives,
    deletions_know_no_rate,
)


def found_by(mutant: Mutant, seeds: Iterable[int] = range(40)) -> FleetOutcome | None:
    """The first world in which a mutant is found; None: in none of them."""
    undo: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    try:
        mutant(put)
        outcomes = (play(seed) for seed in seeds)
        return next((outcome for outcome in outcomes if outcome.wrong), None)
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
