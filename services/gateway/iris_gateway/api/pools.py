"""Endpoints of the fleet: pools, their slices, and what a pool would do."""

from __future__ import annotations

import msgspec

from iris_core.admission.actions import FleetAction
from iris_core.messages.gateway_state import Answer, FleetCommand
from iris_core.views import queries as q
from iris_gateway.api.handling import request_key
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Call

VIEWS = (
    q.PoolsQuery,
    q.PoolQuery,
    q.PoolHistoryQuery,
    q.PoolPlanQuery,
    q.FleetQuery,
    q.FleetSlicesQuery,
    q.FleetSliceQuery,
)
"""The queries of this module."""


async def send(call: Call, target: str, asked: FleetAction) -> Answer:
    """Send a command about a pool or a slice as the caller. Raises Problem."""
    command = FleetCommand(
        asked.action, target, call.caller, *UNSENT, **msgspec.structs.asdict(asked)
    )
    return await call.command(command, key=request_key(call))
