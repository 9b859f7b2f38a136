"""Mutants of the code that keeps large tasks from starving, each of which the simulation must
detect.

See also: `mutants`, which keeps them with the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from iris_scheduler.feasible.reservations import Reservations
from iris_scheduler.place.assignments import Assignments
from tests.sim import faults
from tests.sim.mutants import Put, plant


@plant(faults.kill_any)
def no_host_is_reserved_for_a_task(put: Put) -> None:
    """What becomes free goes to whoever fits, however long a large task has waited."""
    put(Assignments, "reserve_host", lambda self, job: None)


@plant(faults.kill_any)
def a_reserved_host_is_open_to_all(put: Put) -> None:
    """A host is reserved, and smaller tasks are placed there."""
    reserve = Reservations.reserve_host

    def reserve_in_words(self: Reservations, job: int, index: int) -> None:
        reserve(self, job, index)
        if job in self.hosts:
            self._room.reopen(self.hosts[job].slot)

    def release(self: Reservations, jobs: Sequence[int]) -> None:
        for job in jobs:
            found = self.hosts.pop(job, None)
            if found is not None:
                del self._kept[found.slot]

    put(Reservations, "reserve_host", reserve_in_words)
    put(Reservations, "release_hosts", release)


@plant(faults.kill_any)
def the_reservation_flees_from_what_becomes_free(put: Put) -> None:
    """The host that is furthest from being free is reserved, so none ever drains."""
    drain = Reservations._drain

    def worst(self: Reservations, *given: object) -> object:
        found = drain(self, *given)  # type: ignore[arg-type]
        return None if found is None else found._replace(long=-found.ends)

    put(Reservations, "_drain", worst)


@plant(faults.kill_any)
def a_reservation_waits_for_a_parent(put: Put) -> None:
    """A host is reserved although a parent runs there whose child may start nowhere else."""
    put(Reservations, "_held_up", lambda self, slot: frozenset())
