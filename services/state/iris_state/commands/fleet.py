"""Executes commands on pools and slices: set, remove, pause, resume, drain. Raises `Refused`.

Source: docs/design/fleet.md#pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from iris_core.access.rights import Verb, may
from iris_core.admission import actions
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import FleetCommand
from iris_core.states import SliceCause
from iris_core.units import counted
from iris_state.commands.execute import check_length
from iris_state.fleet.admission import check_pool, open_slices
from iris_state.fleet.hosts import forgotten_with_pool
from iris_state.fleet.pools import give_back
from iris_state.records.claims import Step
from iris_state.records.fleet.records import HostPool
from iris_state.records.fleet_changes import PoolRemoved, PoolSet
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_pool, known_slice


def on_fleet(ledger: Ledger, command: FleetCommand, now_ms: int) -> Iterator[Step]:
    """Execute a command, or raise Refused (Invalid lists every mistake)."""
    if not may(command.caller, Verb.ADMINISTER):
        raise Refused(Code.FORBIDDEN, "only an admin may change the fleet")
    check_length("reason", command.reason)
    asked = command.asked
    if isinstance(asked, actions.SetPool):
        yield from _set(ledger, command.target, asked)
    elif isinstance(asked, actions.DrainSlice):
        yield from _drain(ledger, command.target, asked, now_ms)
    else:
        pool = known_pool(ledger, command.target)
        _check_version(pool, asked.version)
        yield from _POOL_ACTIONS[type(asked)](ledger, pool, asked)


def _check_version(pool: HostPool, version: int) -> None:
    if version not in (0, pool.version):
        words = f"{pool.name} has been changed since: it is at version {pool.version}"
        raise Refused(Code.CHANGED, f"{words}, not {version}")


def _set(ledger: Ledger, name: str, asked: actions.SetPool) -> Iterator[Step]:
    spec = asked.spec
    if spec is None:
        raise Refused(Code.INVALID, "set needs a specification")
    if spec.name != name:
        raise Refused(
            Code.INVALID, f"the specification is of {spec.name[:80]!r}, not of {name[:80]!r}"
        )
    known = ledger.fleet.pools.get(name)
    if known is not None:
        _check_version(known, asked.version)
        if spec == known.spec and not known.removing and not is_hindered(known):
            return
    elif asked.version:
        raise Refused(Code.CHANGED, f"there is no pool {name}")
    check_pool(ledger, spec)
    yield PoolSet(spec, reason=asked.reason)


def is_hindered(pool: HostPool) -> bool:
    """Whether something hinders its growth that a person's change has forgotten."""
    return bool(pool.growth.refused or pool.growth.stopped or pool.growth.wait_ms)


def _remove(ledger: Ledger, pool: HostPool, asked: actions.RemovePool) -> Iterator[Step]:
    left = open_slices(ledger, pool)
    if not left:
        yield from forgotten_with_pool(ledger, pool.name)
        yield PoolRemoved(pool.name)
    elif not asked.drain:
        words = f"{pool.name} has {counted(left, 'slice')}"
        raise Refused(Code.CONFLICT, f"{words}: remove it with drain, and it goes with the last")
    elif not pool.removing:
        yield PoolSet(pool.spec, removing=True, reason=asked.reason)


def _pause(ledger: Ledger, pool: HostPool, asked: actions.PausePool) -> Iterator[Step]:
    if not pool.spec.paused:
        spec = replace(pool.spec, paused=True)
        yield PoolSet(spec, removing=pool.removing, reason=asked.reason)


def _resume(ledger: Ledger, pool: HostPool, asked: actions.ResumePool) -> Iterator[Step]:
    if pool.spec.paused or is_hindered(pool):
        spec = replace(pool.spec, paused=False)
        yield PoolSet(spec, removing=pool.removing, reason=asked.reason)


def _drain(ledger: Ledger, name: str, asked: actions.DrainSlice, now_ms: int) -> Iterator[Step]:
    one = known_slice(ledger, name)
    deadline_ms = 0 if asked.deadline_s is None else now_ms + round(asked.deadline_s * 1000) or 1
    steps = list(give_back(one, SliceCause.OPERATOR, deadline_ms=deadline_ms, detail=asked.reason))
    if not steps:
        raise Refused(Code.CONFLICT, f"{one.name} is {one.status.value} already")
    yield from steps


_POOL_ACTIONS: dict[
    type[actions.FleetAction], Callable[[Ledger, HostPool, Any], Iterator[Step]]
] = {
    actions.RemovePool: _remove,
    actions.PausePool: _pause,
    actions.ResumePool: _resume,
}
