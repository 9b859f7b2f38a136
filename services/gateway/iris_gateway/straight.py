"""Commands said to the leader itself: one message less to store, and one sync, on the way of each.

Only while it answers in time, and only a few at once: what it has not answered lies where nobody can take it back, so
everything else goes to the inbox (`commands`), which outlives it and says when it is full.
Source: docs/adr/0013-a-command-goes-to-the-leader-first.md.
"""

from __future__ import annotations

from iris_bus.contract import Bus, Headers, NoResponders, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages import Answer

MOST = 64
"""How many may be under way at once."""
PATIENCE_S = 0.25
"""Far longer than a commit takes."""


class Unheard(Exception):
    """Nobody has heard the command, nor will."""


class Unanswered(Exception):
    """The leader may have heard the command, and may still act on it; or it leaves the command to the inbox."""


class Straight:
    """The way to the leader.

    Args:
        patience_s: how long an answer may take before it is taken for none.
    """

    def __init__(self, bus: Bus, patience_s: float) -> None:
        self._bus = bus
        self._patience_s = patience_s
        self._under_way = 0
        self._open = True

    async def ask(self, subject: str, data: bytes, headers: Headers | None = None) -> Answer:
        """What the leader answers to a command, by the subject it would be stored under. Raises Unheard, Unanswered."""
        if not self._open or self._under_way >= MOST:
            raise Unheard
        self._under_way += 1
        try:
            answer = await self._bus.request(
                subjects.straight(subject), data, timeout=self._patience_s, headers=headers
            )
            return unpack(answer.data, Answer)
        except NoResponders:
            raise Unheard from None
        except (Unavailable, Undecodable):
            self._open = False
            raise Unanswered from None
        finally:
            self._under_way -= 1

    def reopen(self) -> None:
        """A leader has answered what was stored: it can be spoken to again."""
        self._open = True
