"""What makes a repeated command or submission harmless: answers by request id, and idempotency
keys. Pure.

Source: docs/ARCHITECTURE.md#delivery-guarantees.
"""

from __future__ import annotations

from collections import OrderedDict

from iris_core.access.request_ids import key_of

_EACH_BYTES = 290
"""Bytes of memory of an idempotency key or an answer, besides its text: measured, rounded up."""


def kept_bytes(text: str, body: bytes = b"") -> int:
    """Bytes of memory of an idempotency key, or of the answer to a request id, about."""
    return _EACH_BYTES + len(text) + len(body)


class KeptAnswers(OrderedDict[str, tuple[str, bytes]]):
    """The status and body of each answer by request id, oldest first.

    Attributes:
        keys_answered: request ids by the idempotency key that they are made of. bytes: of memory,
            about.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys_answered: dict[str, str] = {}
        self.bytes = 0

    def keep(self, request: str, status: str, body: bytes) -> None:
        """Keep an answer as the newest one."""
        if request in self:
            self.bytes -= kept_bytes(request, self.pop(request)[1])
        self[request] = (status, body)
        if key := key_of(request):
            self.keys_answered[key] = request
        self.bytes += kept_bytes(request, body)

    def drop_oldest(self) -> None:
        request, (_, body) = self.popitem(last=False)
        self.keys_answered.pop(key_of(request), None)
        self.bytes -= kept_bytes(request, body)


class SpentKeys(OrderedDict[str, int]):
    """Idempotency keys of deleted jobs, and when each was spent, ms: a key keeps its job's number
    for a while.

    Attributes:
        bytes: of memory, about.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def spend(self, key: str, at_ms: int) -> None:
        self[key] = at_ms
        self.bytes += kept_bytes(key)

    def drop_oldest(self) -> str:
        """Returns the key."""
        key, _ = self.popitem(last=False)
        self.bytes -= kept_bytes(key)
        return key
