"""Links that sign a browser in once: a code stands for a token for a short time. Pure; the time is
an argument.

They are in the memory of one process: behind several gateways a link may meet another one, which
    refuses it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from iris_core.limits import LOGIN_LINK_MINUTES

MAX_LINKS = 1000
MAX_OF_USER = 20
"""Of them those of one user: with one more, the oldest of the user is void."""


class _Link(NamedTuple):
    user: str
    token: str
    until_s: float


@dataclass(slots=True)
class LoginLinks:
    """The links that were made and not used yet, oldest first; a code is kept as its SHA-256."""

    _links: dict[bytes, _Link] = field(default_factory=dict)

    def add(self, code: str, user: str, token: str, now_s: float) -> None:
        """Let ``code`` stand for ``token`` of a user until it is used, for `LOGIN_LINK_MINUTES` at
        most.

        Without room the oldest link of the user who has most of them is void.
        """
        self._forget(now_s)
        counts = Counter(link.user for link in self._links.values())
        if counts[user] >= MAX_OF_USER:
            self._drop_oldest(user)
        elif len(self._links) >= MAX_LINKS:
            self._drop_oldest(max(counts, key=counts.__getitem__))
        self._links[_digest(code)] = _Link(user, token, now_s + 60 * LOGIN_LINK_MINUTES)

    def look(self, code: str, now_s: float) -> str:
        """The token that a code stands for; empty when it was used, has expired, or never was
        one.
        """
        self._forget(now_s)
        link = self._links.get(_digest(code))
        return link.token if link is not None else ""

    def use(self, code: str, now_s: float) -> str:
        """As `look`; the code has been used then."""
        token = self.look(code, now_s)
        self._links.pop(_digest(code), None)
        return token

    def _forget(self, now_s: float) -> None:
        for code in [code for code, link in self._links.items() if link.until_s < now_s]:
            del self._links[code]

    def _drop_oldest(self, user: str) -> None:
        del self._links[next(code for code, link in self._links.items() if link.user == user)]


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).digest()
