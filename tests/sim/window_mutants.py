"""The mutant of the code that bounds what a user prepares on a host; the simulation must detect it.

See also: `mutants`, which keeps it with the others.
"""

from __future__ import annotations

from iris_core.placement.window import WINDOWS
from iris_scheduler.place import windows
from iris_state.inputs.plans import accept
from tests.sim.mutants import Put, plant


@plant()
def a_user_has_more_than_a_share_of_a_full_window(put: Put) -> None:
    """Beyond a full window everybody may prepare whatever all users together may."""
    put(windows.FullWindows, "__bool__", lambda self: len(self.slots) > 0)
    put(windows, "share_of", lambda window, users: WINDOWS * window)
    put(
        accept,
        "places_beyond",
        lambda window, preparing, own, users: WINDOWS * window - preparing,
    )
