"""Which pools may be set, in `iris pool apply` and in its plan alike."""

from __future__ import annotations

from iris_core.admission.pools import unknown_program, validate_pool
from iris_core.errors import Code, Invalid, Refused
from iris_core.spec.pools import PoolSpec
from iris_core.units import counted
from iris_state.records.fleet.records import HostPool
from iris_state.records.ledger import Ledger

MAX_POOLS = 200


def check_pool(ledger: Ledger, spec: PoolSpec) -> None:
    """Raises Refused for a specification that no pool may have, or not the pool of its name now;
    Invalid lists every mistake.
    """
    pools = ledger.fleet.pools
    if mistakes := validate_pool(spec, [pool.spec for pool in pools.values()]):
        raise Invalid(mistakes)
    known = pools.get(spec.name)
    if known is not None:
        _check_provider(ledger, known, spec)
    elif len(pools) >= MAX_POOLS:
        raise Refused(Code.OVER_QUOTA, f"there are {MAX_POOLS} pools, which is the limit")
    now = known.spec if known is not None else None
    if mistakes := unknown_program(spec, now, ledger.sightings.programs):
        raise Invalid(mistakes)


def open_slices(ledger: Ledger, pool: HostPool) -> int:
    """How many slices of a pool are not over."""
    return sum(1 for one in ledger.fleet.of_pool(pool.name) if not one.is_over)


def _check_provider(ledger: Ledger, pool: HostPool, spec: PoolSpec) -> None:
    """Raises Refused for another provider of a pool with slices: who made them has to delete
    them.
    """
    if (spec.provider, spec.options) == (pool.spec.provider, pool.spec.options):
        return
    left = open_slices(ledger, pool)
    if left:
        words = f"{pool.name} has {counted(left, 'slice')} of provider {pool.spec.provider}"
        raise Refused(
            Code.CONFLICT, f"{words}: its provider and options are changed when it has none"
        )
