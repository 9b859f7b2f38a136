"""A job's specification for listings: long values are truncated.

Admission bounds the size of one job; a page of a hundred such jobs would be too large. Out of
scope: secrets (`redaction`). Source: docs/adr/0017-reads-beside-the-writer.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec

from iris_core import codec
from iris_core.spec.jobs import JobSpec

ENTRIES = 64
"""Entries of each collection that are shown."""
BYTES = 2048
"""Bytes of each collection that are shown, as JSON."""
T = TypeVar("T")


def abridged(spec: JobSpec) -> JobSpec:
    """The specification with only the first entries of its collections; the same object when all
    are shown.
    """
    most = max(map(len, (spec.command, spec.constraints, spec.ports, spec.env, spec.labels)))
    if most <= ENTRIES and len(codec.to_json(spec)) <= BYTES:
        return spec
    shorter: dict[str, Any] = {}
    for name in ("command", "constraints", "ports"):
        entries = getattr(spec, name)
        kept = tuple(_first(entries))
        if len(kept) < len(entries):
            shorter[name] = kept
    for name in ("env", "labels"):
        mapping = getattr(spec, name)
        kept_pairs = dict(_first(mapping.items()))
        if len(kept_pairs) < len(mapping):
            shorter[name] = kept_pairs
    if len(spec.indexes) > BYTES:
        shorter["indexes"] = spec.indexes[:BYTES].rpartition(",")[0]
    return msgspec.structs.replace(spec, **shorter) if shorter else spec


def _first(entries: Iterable[T]) -> Iterable[T]:
    """The first entries that fit."""
    left = BYTES
    for entry in islice(entries, ENTRIES):
        left -= _size(entry)
        if left < 0:
            return
        yield entry


def _size(entry: Any) -> int:
    if isinstance(entry, str):
        return len(entry)
    if isinstance(entry, tuple):
        return sum(map(len, entry))
    return len(codec.to_json(entry))
