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
RETRY_FOR_S = 0.25
"""Far longer than a commit takes."""


class NoLeader(Exception):
    """Nobody has heard the command, nor will."""


class Unanswered(Exception):
    """The leader may have heard the command, and may still act on it; or it leaves the command to the inbox."""


class DirectRequests:
    """The way to the leader.

    Args:
        retry_for_s: how long an answer may take before it is taken for none.
    """

    def __init__(self, bus: Bus, retry_for_s: float) -> None:
        self._bus = bus
        self._timeout_s = retry_for_s
        self._in_flight = 0
        self._open = True

    async def ask(self, subject: str, data: bytes, headers: Headers | None = None) -> Answer:
        """What the leader answers to a command, by the subject it would be stored under.

        Raises NoLeader, Unanswered.
        """
        if not self._open or self._in_flight >= MOST:
            raise NoLeader
        self._in_flight += 1
        try:
            answer = await self._bus.request(
                subjects.direct_subject(subject), data, timeout=self._timeout_s, headers=headers
            )
            return unpack(answer.data, Answer)
        except NoResponders:
            raise NoLeader from None
        except (Unavailable, Undecodable):
            self._open = False
            raise Unanswered from None
        finally:
            self._in_flight -= 1

    def reopen(self) -> None:
        """A leader has answered what was stored: it can be spoken to again."""
        self._open = True
