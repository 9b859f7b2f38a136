"""The keys of NATS users in a directory: one file per user, readable by its owner only, created on
first use.

The library that signs is loaded only when a key is used. Source: docs/design/nats.md#features-used
    (nkeys).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SUFFIX = ".seed"
_SEED_BYTES = 36
"""A prefix of two bytes, a key of 32, and a checksum of two."""


class BadKey(ValueError):
    """A file that holds no seed of an nkey user."""


class Keys:
    """The seeds in ``directory``; existing keys are kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, label: str) -> Path:
        return self.directory / f"{label}{_SUFFIX}"

    def ensure(self, labels: Iterable[str]) -> dict[str, str]:
        """The public keys of all stored users and of ``labels``; creates missing ones. Raises
        BadKey, OSError.

        An empty file, which power loss may leave, counts as missing.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        present = {path.name.removesuffix(_SUFFIX) for path in self.directory.glob(f"*{_SUFFIX}")}
        for label in {*present, *labels}:
            path = self.path(label)
            if not path.exists() or not path.stat().st_size:
                write_private(path, _make() + "\n")
        return {label: public_key(self.path(label)) for label in sorted({*present, *labels})}


def public_key(seed: Path) -> str:
    """The public key of the user whose seed is in a file. Raises BadKey, OSError."""
    return str(_pair(seed).public_key, "ascii")


def signed(seed: Path, nonce: str) -> bytes:
    """Sign a server's nonce with the seed of a file. Raises BadKey, OSError."""
    signature: bytes = _pair(seed).sign(nonce.encode())
    return signature


def _pair(path: Path) -> Any:
    import nkeys

    text = path.read_bytes().strip()
    if not _is_whole(text):
        raise BadKey(
            f"{path} does not hold the seed of a NATS user: it is damaged; put back a copy of it, or delete it: "
            "the next `iris up`, or `iris admin nats-config`, makes another"
        )
    pair = nkeys.from_seed(bytearray(text))
    if not pair.public_key.startswith(b"U"):
        raise BadKey(f"{path} holds the seed of something other than a user")
    return pair


def _is_whole(seed: bytes) -> bool:
    """Whether a seed has the form of one, and its checksum; the library that signs looks at
    neither.
    """
    try:
        raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
    except ValueError:
        return False
    return (
        len(raw) == _SEED_BYTES
        and seed.startswith(b"S")
        and binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")
    )


def _make() -> str:
    import nkeys

    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` atomically and durably, readable by its owner only."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(directory)
    os.close(directory)
