"""Request ids that are made of an idempotency key, so that a key that is used for another request
is noticed.
"""

from __future__ import annotations

import hashlib

_BETWEEN = "~"


def keyed_request(key: str, content: bytes) -> str:
    """The id of a request: from its key and its content. Empty without a key."""
    return f"{key}{_BETWEEN}{hashlib.sha256(content).hexdigest()[:16]}" if key else ""


def key_of(request_id: str) -> str:
    """The key in a request id, empty for an id that was not made of one."""
    key, between, _ = request_id.partition(_BETWEEN)
    return key if between else ""
