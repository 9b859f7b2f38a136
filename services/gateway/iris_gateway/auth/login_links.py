"""Links that sign a browser in once: a code stands for a token for a short time. Pure; the time is
an argument.

They are in the memory of one process: behind several gateways a link may meet another one, which
    refuses it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from iris_core.limits import LOGIN_LINK_MINUTES

MAX_LINKS = 1000


@dataclass(slots=True)
class LoginLinks:
    """The links that were made and not used yet, oldest first; a code is kept as its SHA-256."""

    _links: dict[bytes, tuple[str, float]] = field(default_factory=dict)

    def add(self, code: str, token: str, now_s: float) -> None:
        """Let ``code`` stand for ``token`` until it is used, for `LOGIN_LINK_MINUTES` at most."""
        self._forget(now_s)
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        self._links[_digest(code)] = token, now_s + 60 * LOGIN_LINK_MINUTES

    def look(self, code: str, now_s: float) -> str:
        """The token that a code stands for; empty when it was used, has expired, or never was
        one.
        """
        self._forget(now_s)
        return self._links.get(_digest(code), ("", 0.0))[0]

    def use(self, code: str, now_s: float) -> str:
        """As `look`; the code has been used then."""
        token = self.look(code, now_s)
        self._links.pop(_digest(code), None)
        return token

    def _forget(self, now_s: float) -> None:
        for code in [code for code, (_, until_s) in self._links.items() if until_s < now_s]:
            del self._links[code]


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).digest()
