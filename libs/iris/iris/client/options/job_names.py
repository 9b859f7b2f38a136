"""Makes the full name of a new job: the given one, below its parent, or a generated one.

Out of scope: whether a name is valid (`iris_core.names`, applied by the gateway). Source:
docs/design/semantics.md#jobs.
"""

from __future__ import annotations

import hashlib
import secrets

from iris.client.problems import InvalidOption

_HOW = (
    "amber", "bold", "brisk", "calm", "clear", "coral", "deep", "early", "fair", "fresh", "gentle", "glad", "gold",
    "green", "keen", "kind", "light", "lucid", "mild", "neat", "noble", "plain", "proud", "quick", "quiet", "rapid",
    "ready", "sharp", "silver", "steady", "sunny", "swift", "tidy", "true", "vivid", "warm", "wide", "wise",
)  # fmt: skip
_WHO = (
    "alder", "badger", "beech", "birch", "crane", "delta", "dune", "falcon", "fern", "finch", "fjord", "harbor",
    "hazel", "heron", "iris", "jay", "lark", "lynx", "maple", "marsh", "meadow", "moss", "oak", "otter", "owl",
    "pine", "plover", "quail", "raven", "reed", "robin", "rowan", "sparrow", "spruce", "stork", "swan", "tern",
    "thrush", "willow", "wren",
)  # fmt: skip


def fresh_name(seed: str = "") -> str:
    """Two words and six hex digits, e.g.

    ``brisk-otter-3f9a1c``: 2.5 x 10**10 names, easy to read and to type. The same ``seed`` gives
    the same name, so that a repeated request is the same.
    """
    noise = (
        hashlib.sha256(seed.encode(errors="surrogateescape")).digest()
        if seed
        else secrets.token_bytes(32)
    )
    how, who = (int.from_bytes(noise[at : at + 8], "big") for at in (0, 8))
    return f"{_HOW[how % len(_HOW)]}-{_WHO[who % len(_WHO)]}-{noise[-3:].hex()}"


def full_name(name: str | None, parent: str | None, seed: str = "") -> str:
    """The path of a new job.

    Args:
        name: the given name; with a leading slash it is the whole path. None: a generated one, from
            ``seed`` if given.
        parent: the path of the parent job, with or without its leading slash; None or empty at top
            level. ``@ann`` of its owner may follow.

    Raises InvalidOption when a whole path was given that does not lie directly under ``parent``.
    """
    path = (parent or "").partition("@")[0].strip("/")
    above = f"/{path}" if path else ""
    if name is None:
        return f"{above}/{fresh_name(seed)}"
    if not name.startswith("/"):
        return f"{above}/{name}"
    if above and name.rpartition("/")[0] != above:
        raise InvalidOption(
            f"{name} is not a child of {above}; leave out the leading slash, or the parent"
        )
    return name
