"""Mutants of the code that lets calls wait behind one another, each of which the simulation must
detect.

See also: `mutants`, which keeps them with the others.
"""

from __future__ import annotations

import msgspec

from iris_state.effects.orders import OrderBook
from iris_state.records.indexes.chains import Chains
from iris_worker.agent.chains import WaitingChains
from tests.sim.mutants import Put, plant


@plant()
def what_waits_does_not_wait(put: Put) -> None:
    """A worker starts what was to wait at once."""
    add = WaitingChains.add
    bare = msgspec.structs.replace

    put(WaitingChains, "add", lambda self, chain, *rest: add(self, bare(chain, ahead=()), *rest))


@plant()
def an_order_does_not_say_what_waits(put: Put) -> None:
    """The attempts of a chain are ordered like any others."""
    put(OrderBook, "_chains", lambda *given: ())


@plant()
def the_first_end_frees_the_place_of_a_chain(put: Put) -> None:
    """What a chain holds is free while one of it is open."""
    leave = Chains.leave
    put(Chains, "leave", lambda self, key, behind: leave(self, key, behind) or True)
