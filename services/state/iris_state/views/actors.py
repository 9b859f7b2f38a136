"""Who caused a change, as the API shows it."""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor, named
from iris_core.views.jobs import ActorView


def actor_view(actor: Actor | None) -> ActorView | None:
    """None for Iris itself."""
    if actor is None:
        return None
    return ActorView(
        name=named(actor),
        **{key: value or None for key, value in msgspec.structs.asdict(actor).items()},
    )
