"""The file in which a provisioner says which hosts of pools have no key, read by what makes keys on
this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from iris_core import codec


class WantedKeys(msgspec.Struct):
    """The hosts, by the ids of their workers."""

    workers: list[str] = []


def write_wanted(path: Path, workers: Sequence[str]) -> None:
    """Replace the file as a whole. Raises OSError."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(codec.to_json(WantedKeys(list(workers))))
    draft.replace(path)


def read_wanted(path: Path) -> list[str]:
    """The hosts without a key; none where there is no such file, or it cannot be read."""
    try:
        return codec.from_json(path.read_bytes(), WantedKeys).workers
    except (OSError, codec.Undecodable):
        return []
