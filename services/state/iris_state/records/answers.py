"""What makes a repeated command or submission harmless: answers by request id, and idempotency
keys. Pure.

Source: docs/ARCHITECTURE.md#delivery-guarantees.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator

from iris_core.access.request_ids import key_of
from iris_state.records.entities import user_of_key

_EACH_BYTES = 290
"""Bytes of memory of an idempotency key or an answer, besides its text: measured, rounded up."""

_OF_A_USER_BYTES = 110
"""Bytes of memory by which one is found among those of its user: measured, rounded up. Those of an
answer are also found by its request id.
"""


def kept_bytes(text: str, body: bytes = b"") -> int:
    """Bytes of memory of an idempotency key, or of the answer to a request id, about."""
    return _EACH_BYTES + len(text) + len(body)


class HeldByUsers:
    """What each user has, oldest first.

    Attributes:
        bytes: of memory of all, about. bytes_of: of each user's. of: their keys.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.bytes_of: Counter[str] = Counter()
        self.of: dict[str, OrderedDict[str, None]] = {}

    def add(self, user: str, key: str, size: int) -> None:
        self.of.setdefault(user, OrderedDict())[key] = None
        self.bytes += size
        self.bytes_of[user] += size

    def remove(self, user: str, key: str, size: int) -> None:
        del self.of[user][key]
        self.bytes -= size
        self.bytes_of[user] -= size
        if not self.of[user]:
            del self.of[user], self.bytes_of[user]


class KeptAnswers(OrderedDict[str, tuple[str, bytes]]):
    """The status and body of each answer by request id, oldest first.

    Attributes:
        keys_answered: request ids by the idempotency key that they are made of. users: whose each
            is, by request id. held: by users.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys_answered: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.held = HeldByUsers()

    def keep(self, request: str, status: str, body: bytes, user: str) -> None:
        """Keep an answer as the newest one."""
        if request in self:
            self.drop(request)
        self[request] = (status, body)
        if key := key_of(request):
            self.keys_answered[key] = request
        self.users[request] = sys.intern(user)
        self.held.add(user, request, self._size(request))

    def drop(self, request: str) -> None:
        self.held.remove(self.users.pop(request), request, self._size(request))
        del self[request]
        self.keys_answered.pop(key_of(request), None)

    def surplus(self, keep: int, keep_bytes: int, most: int) -> list[str]:
        """The answers to delete: beyond a number the oldest of the user who has most of them,
        beyond their memory of the user who has most of that.
        """
        gone: list[str] = []
        bytes_left = self.held.bytes
        if len(self) <= keep and bytes_left <= keep_bytes:
            return gone
        taken: Counter[str] = Counter()
        taken_bytes: Counter[str] = Counter()
        oldest: dict[str, Iterator[str]] = {}
        while len(gone) < min(most, len(self)):
            if len(self) - len(gone) > keep:
                left = ((len(kept) - taken[one], one) for one, kept in self.held.of.items())
            elif bytes_left > keep_bytes:
                left = ((size - taken_bytes[one], one) for one, size in self.held.bytes_of.items())
            else:
                break
            _, user = max(left)
            if user not in oldest:
                oldest[user] = iter(self.held.of[user])
            request = next(oldest[user])
            gone.append(request)
            taken[user] += 1
            taken_bytes[user] += self._size(request)
            bytes_left -= self._size(request)
        return gone

    def _size(self, request: str) -> int:
        return 2 * _OF_A_USER_BYTES + kept_bytes(request, self[request][1])


class SpentKeys(OrderedDict[str, int]):
    """Idempotency keys of deleted jobs, and when each was spent, ms: a key keeps its job's number
    for a while.

    Attributes:
        held: by users.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = HeldByUsers()

    def spend(self, key: str, at_ms: int) -> None:
        self[key] = at_ms
        self.held.add(user_of_key(key), key, _spent_bytes(key))

    def drop(self, key: str) -> None:
        del self[key]
        self.held.remove(user_of_key(key), key, _spent_bytes(key))

    def surplus(self, keep_bytes: int, oldest_ms: int, most: int) -> list[str]:
        """The keys to delete: those that are too old, and of what is too much the oldest of the
        user who has most.
        """
        gone: dict[str, None] = {}
        for key, at_ms in self.items():
            if at_ms >= oldest_ms or len(gone) == most:
                break
            gone[key] = None
        sizes = {key: _spent_bytes(key) for key in gone}
        left = self.held.bytes - sum(sizes.values())
        if left <= keep_bytes or len(gone) == most:
            return list(gone)
        held = Counter(self.held.bytes_of)
        for key, size in sizes.items():
            held[user_of_key(key)] -= size
        oldest = {user: iter(keys) for user, keys in self.held.of.items()}
        while left > keep_bytes and len(gone) < most:
            user = max(oldest, key=lambda one: (held[one], one))
            key = next(found for found in oldest[user] if found not in gone)
            gone[key] = None
            size = _spent_bytes(key)
            left -= size
            held[user] -= size
        return list(gone)


def _spent_bytes(key: str) -> int:
    return _OF_A_USER_BYTES + kept_bytes(key)
